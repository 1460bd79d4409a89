#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Rules of the source tree: who may include whom, which file may use which library, how lists are made,
# headers that compile alone, licence lines, no generated or binary files.
. "$(dirname "$0")/lib.sh"
cd "$top" || exit 1

# who may include whom: tests/includes.py has the rules
is "$(python3 tests/includes.py)" "" "every folder includes only what it may, and no headers go in a circle"

# the rules themselves: an include that points the wrong way is named, wherever it is added
tree=$scratch/tree
wrong_include() { # FILE INCLUDE: what includes.py says of it
	rm -rf "$tree"
	mkdir "$tree"
	git ls-files -z '*.c' '*.h' | grep -zvE '^(tests|vmm/qemu/trimmed)/' | xargs -0 cp --parents -t "$tree"
	printf '#include "%s"\n' "$2" >>"$tree/$1"
	python3 tests/includes.py "$tree"
}
while read -r file include; do
	like "$(wrong_include "$file" "$include")" "$file includes $include" "$file may not include $include"
done <<-'END'
	common/err.c store/store.h
	restore/pager/fill.c restore/sandbox.h
	pool/pool.c bake/bake.h
	bake/bake.c pool/pool.h
	pool/http/http.c pool/pool.h
	vmm/monitor.c vmm/qemu/qmp.h
	cli/run.c pool/sandbox_private.h
	agent/main.c common/err.h
	egress/proxy.c restore/sandbox.h
	egress/proxy.c vmm/guest/guest.h
END
like "$(wrong_include common/err.h common/file.h)" "headers go in a circle" "headers that include each other are found"

# hand_made FILE…: structs with a member that points to another of their kind, as "FILE: struct NAME: MEMBER"
hand_made() {
	perl -0777 -ne '
		s{/\*.*?\*/|"(?:[^"\\]|\\.)*"|\x27(?:[^\x27\\]|\\.)+\x27}{}gs;
		while (/\bstruct\s+(\w+)\s*(?=(\{(?:[^{}]++|(?2))*+\}))/g) {
			my ($name, $body) = ($1, $2);
			$body =~ s/\s+/ /g;
			print "$ARGV: struct $name: $1\n" while $body =~
				/[;{}] ?(?=(?:(?:const|volatile) )*struct \Q$name\E ?(\*[^;(){}]*);)/g;
		}' "$@"
}
# A list is one of <sys/queue.h>. What points to its own kind and is no list:
#   ext4_dir.parent, the directory above; fetch_transfer.twin, an earlier transfer of the same digest;
#   option_entry.table and command.commands, tables within tables; end.removes, in test_loop.c, what a callback removes
is "$(hand_made $(git ls-files '*.c' '*.h' ':!vmm/qemu/trimmed') |
	grep -vxE '[^:]+: struct (ext4_dir: \*parent|fetch_transfer: \*twin|option_entry: \*table|command: \*const \*commands|end: \*removes)' | tr '\n' ' ')" "" \
	"no list is linked by hand: <sys/queue.h> has them"
while read -r text; do
	like "$(hand_made <(echo "$text"))" "struct a: \\*" "a list linked by hand is found: $text"
done <<-'END'
	struct a { struct a *next; };
	struct a { int n; struct a *next, **prev; };
	struct a { int n; /* { */ const struct a *next; /* } */ };
	struct b { union { int n; } u; struct a { struct { int n; } in; struct a **last; } *first; };
END
is "$(hand_made <(echo 'struct a { int n; void (*fn)(struct a *next); struct b *next; LIST_ENTRY(a) link; }; struct a *a;'))" "" \
	"and what takes its own kind, or is in a list of <sys/queue.h>, is not"

ok "the picture of the tree is drawn from its rules" cmp docs/architecture.svg <(python3 docs/architecture.py)
# what docs/architecture.md names and the tree does not have: functions, files
misnamed() {
	grep -oE '`[a-z0-9_]+\(\)`' docs/architecture.md | tr -d '`()' | sort -u | while read -r name; do
		git grep -qE "^[a-z_0-9 *]*\b$name\(" -- '*.c' ':!tests' || echo "$name()"
	done
	grep -oE '`[a-z0-9_/]+\.(c|h|py|md)`' docs/architecture.md | tr -d '`' | sort -u | while read -r name; do
		git ls-files | grep -qE "(^|/)$name\$" || echo "$name"
	done
}
is "$(misnamed | tr '\n' ' ')" "" "docs/architecture.md names functions and files that are there"

# what nobody uses: tests/unused.py has the rules
build=${BUILD:-build}
is "$(python3 tests/unused.py . "$build")" "" "the product has no function, variable or macro that it does not use"
tree=$scratch/unused
mkdir -p "$tree/common" "$tree/tests" "$tree/build/common"
cat >"$tree/common/a.h" <<-'END'
	#define A_MACRO 1
	int a_used(void);
	int a_missing(void);
	int a_own(void);
	int a_tested(void);
	int a_lonely(void);
	int a_seam(void);
END
{
	echo '#include "common/a.h"'
	printf 'int a_%s(void)\n{\n\treturn 1;\n}\n' own tested lonely seam
	printf 'int a_used(void)\n{\n\treturn a_own() + a_seam();\n}\n'
} >"$tree/common/a.c"
printf '#include "common/a.h"\nint main(void)\n{\n\treturn a_used();\n}\n' >"$tree/common/b.c"
echo 'int x = a_tested() + a_seam();' >"$tree/tests/test.c"
ok "the sources of a rule that is broken are compiled" sh -c 'cd "$1" && gcc -I. -c -o build/common/a.o common/a.c &&
	gcc -I. -c -o build/common/b.o common/b.c' sh "$tree"
is "$(python3 tests/unused.py "$tree" "$tree/build")" "common/a.c: a_lonely is used by nobody
common/a.c: a_own is used by no other file and is not static
common/a.c: a_tested is used by tests alone
common/a.h: A_MACRO is used by nobody
common/a.h: a_missing is declared and not there" "what is not used is found: by nobody, by tests alone, by its own file alone"

# library: the files that may include its headers
library() { # HEADER-PATTERN FILE-PATTERN NAME
	is "$(git grep -lE "^#include <($1)" -- '*.c' '*.h' ':!tests' ':!vmm/qemu/trimmed' | grep -vE "^($2)" | tr '\n' ' ')" "" \
		"$3 is used by $2 alone"
	is "$(git grep -lE "^#include <($1)" -- '*.h' ':!tests' ':!vmm/qemu/trimmed' | grep -vE '_private\.h|common/json\.h|restore/pager/uffd\.h' | tr '\n' ' ')" "" \
		"$3 stands in no public header"
}
library 'curl/' 'bake/fetch/|cli/client' libcurl
library 'archive' 'bake/source/unpack' libarchive
library 'ext2fs/|et/com_err' 'bake/ext4/' libext2fs
library 'zstd|zdict' 'store/' zstd
library 'ini\.h' 'common/inifile' inih
library 'jansson' 'common/json\.h' jansson
library 'microhttpd' 'pool/http/' libmicrohttpd
library 'openssl/' 'common/digest' libcrypto
library 'sodium' 'common/signature' libsodium
library 'linux/userfaultfd' 'restore/pager/|vmm/qemu/preload_uffd|vmm/kvm/program/pager' userfaultfd

# what a file is for: right behind the licence; in a header behind its guard and includes at the latest
untold() { # FILE…: those that begin with something else than a comment
	awk 'FNR == 1 { told = 0; next }
		told { next }
		/^\/\*/ { told = 1; next }
		FILENAME ~ /\.h$/ && (/^$/ || /^#ifndef / || /^#define [A-Z0-9_]+_H$/ || /^#include /) { next }
		{ told = 1; print FILENAME }' "$@"
}
is "$(untold $(git ls-files '*.c' '*.h' ':!vmm/qemu/trimmed'))" "" \
	"every source file says what it is for before anything else"
printf '%s\n' 'SPDX' '#include "x.h"' '/* Late. */' >"$scratch/late.c"
printf '%s\n' 'SPDX' '#ifndef X_H' '#define X_H' '#define LATE 1' '/* Late. */' '#endif' >"$scratch/late.h"
printf '%s\n' 'SPDX' '#ifndef X_H' '#define X_H' '' '#include "y.h"' '/* In time. */' '#endif' >"$scratch/good.h"
is "$(untold "$scratch/late.c" "$scratch/late.h" "$scratch/good.h" | tr '\n' ' ')" "$scratch/late.c $scratch/late.h " \
	"a source file that begins with something else is found"

like "$(env -u MAKELEVEL -u MAKEFLAGS -u MFLAGS make -pnq help 2>/dev/null | grep '^MAKEFLAGS')" "-j$(nproc)( |\$)" \
	"make uses all cores by itself"
is "$(git ls-files '*.c' | grep -v '^tests/' | xargs grep -hoE '\b(fault_)?point\("[a-z.-]+"|"store\.open\.[a-z-]+"' | grep -oE '"[^"]+"' | sort -u |
	while read -r name; do grep -qF "	$name," common/fault.c || echo "$name"; done | tr '\n' ' ')" "" \
	"every fault point stands in the table of common/fault.c"
# what the KVM monitor may call, as its filter has it and as the page about security says
undocumented() { # what filter.c lists and docs/security.md does not
	local name
	grep -oE '\bSYS_[a-z0-9_]+' vmm/kvm/program/filter.c | sed 's/SYS_//' | sort -u | while read -r name; do
		case $name in ioctl | seccomp) continue ;; esac
		grep -q "\`$name\`" docs/security.md || echo "$name"
	done
	grep -oE '\bKVM_[A-Z_0-9]+' vmm/kvm/program/filter.c | sed 's/KVM_//' | sort -u | while read -r name; do
		grep -qE "\b$name\b" <<<"$ioctls" || grep -qE "\b${name#?ET_}\b" <<<"$ioctls" || echo "$name"
	done
}
ioctls=$(grep '^| KVM, by' docs/security.md)
is "$(undocumented)" "" "docs/security.md has each system call of the KVM monitor's filter"

ok "headers compile alone" make --no-print-directory headercheck
is "$(grep -LE 'SPDX-License-Identifier: Apache-2.0' $(git ls-files '*.c' '*.h' '*.sh' '*.py') | tr '\n' ' ')" "" \
	"every source file names its licence"
is "$(sh tests/kvm/rig-init >/dev/null 2>&1; echo $?)" 2 "the rig's init refuses to run on a host"
is "$(git ls-files -z | xargs -0 grep -lIv -e '^' --null 2>/dev/null | tr '\0' ' ')" "" "no empty files"
too_long() { # LINES PATTERN…: the files of these that are longer
	local lines=$1
	shift
	git ls-files -- "$@" | xargs wc -l | awk -v max="$lines" '$1 > max && $2 != "total" { print $2 }'
}
is "$(too_long 600 '*.c' ':!tests')" "" "no source file of the product is longer than 600 lines"
is "$(too_long 250 '*.h' ':!tests')" "" "no header of the product is longer than 250 lines"
is "$(too_long 700 'tests/*.c' 'tests/*.h')" "" "no test is longer than 700 lines"
is "$(git grep -nE '\b(TODO|FIXME|XXX)\b' -- '*.c' '*.h' '*.sh' '*.py' | grep -v '^tests/rules.sh' | head -n 3)" "" \
	"nothing is left for later in the sources"
is "$(git ls-files | while read -r f; do
	[ -f "$f" ] && [ -s "$f" ] && ! grep -qI . "$f" && case $f in tests/fuzz/corpus/* | tests/hostile/*) ;; *) echo "$f" ;; esac
done)" "" "no binaries in the tree"
finish
