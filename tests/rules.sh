#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Rules of the source tree: who may include whom, which file may use which library, headers that
# compile alone, licence lines, no generated or binary files.
. "$(dirname "$0")/lib.sh"
cd "$top" || exit 1

# part: what it may include, besides itself
allowed() {
	case $1 in
	common) echo "" ;;
	agent) echo "" ;;
	store) echo "common" ;;
	vmm) echo "common store agent/proto.h" ;;
	bake | restore) echo "common store vmm agent/proto.h" ;;
	pool) echo "common store vmm bake restore agent/proto.h" ;;
	benches) echo "common store vmm restore agent/proto.h" ;;
	cli) echo "common store vmm bake restore pool benches agent/proto.h" ;;
	esac
}

for part in common agent store vmm bake restore pool benches cli; do
	[ -d "$part" ] || continue
	bad=
	while IFS=: read -r file include; do
		case " $(allowed $part) $part " in
		*" ${include%%/*} "* | *" $include "*) ;;
		*) bad="$bad $file includes $include;" ;;
		esac
	done < <(grep -oE '^#include "[^"]+"' "$part"/*.[ch] | sed -E 's/:#include "([^"]+)"/:\1/')
	is "$bad" "" "$part includes only: $(allowed $part)"
done

# library: the files that may include its headers
library() { # HEADER-PATTERN FILE-PATTERN NAME
	is "$(grep -lE "^#include <($1)" -- */*.[ch] | grep -vE "^($2)" | tr '\n' ' ')" "" \
		"$3 is used by $2 alone"
	is "$(grep -lE "^#include <($1)" -- */*.h | grep -vE '_internal\.h|_impl\.h|common/json\.h|restore/uffd\.h' | tr '\n' ' ')" "" \
		"$3 stands in no public header"
}
library 'curl/' 'bake/fetch|cli/client' libcurl
library 'archive' 'bake/unpack' libarchive
library 'ext2fs/|et/com_err' 'bake/ext4' libext2fs
library 'zstd|zdict' 'store/' zstd
library 'ini\.h' 'common/inifile' inih
library 'jansson' 'common/json\.h' jansson
library 'microhttpd' 'pool/http' libmicrohttpd
library 'openssl/' 'common/digest' libcrypto
library 'linux/userfaultfd' 'restore/|vmm/preload_uffd' userfaultfd

ok "headers compile alone" make --no-print-directory headercheck
is "$(grep -LE 'SPDX-License-Identifier: Apache-2.0' $(git ls-files '*.c' '*.h' '*.sh' '*.py') | tr '\n' ' ')" "" \
	"every source file names its licence"
is "$(sh tests/kvm/rig-init >/dev/null 2>&1; echo $?)" 2 "the rig's init refuses to run on a host"
is "$(git ls-files -z | xargs -0 grep -lIv -e '^' --null 2>/dev/null | tr '\0' ' ')" "" "no empty files"
is "$(git ls-files '*.c' '*.h' | xargs wc -l | awk '$1 > 700 && $2 != "total" { print $2 }')" "" \
	"no source file is longer than 700 lines"
is "$(git grep -nE '\b(TODO|FIXME|XXX)\b' -- '*.c' '*.h' '*.sh' '*.py' | grep -v '^tests/rules.sh' | head -n 3)" "" \
	"nothing is left for later in the sources"
is "$(git ls-files | while read -r f; do
	[ -f "$f" ] && [ -s "$f" ] && ! grep -qI . "$f" && case $f in tests/fuzz/corpus/* | tests/hostile/*) ;; *) echo "$f" ;; esac
done)" "" "no binaries in the tree"
finish
