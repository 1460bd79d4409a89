#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Translated code that is kept: a bake makes it, sandboxes run it and compute the same as without,
# what does not fit is left alone, and what is missing is made again.
. "$(dirname "$0")/lib.sh"

if [ ! -x "$top/build/parbake-qemu" ]; then
	skip "translations" "the trimmed QEMU is not built; make monitor"
	finish
fi
# with KVM nothing is translated: an emulated machine has them on any host
export PARBAKE_ACCEL=tcg PARBAKE_TRAIN=off
is "$(doctor accelerator value)" tcg "machines are emulated where that is asked for"
kept=$PARBAKE_HOME/cache/translations
run() { timeout 120 "$parbake" run tiny -- "$@"; }
work='cat /bin/* /lib/*.so* 2>/dev/null | md5sum; seq 1 2000 | sort -r | md5sum; env -i sh -c "echo \$((6 * 7))"'

rm -rf "$kept"
bake "$recipes/tiny.ini"
file=$(ls "$kept"/* 2>/dev/null)
is "$(wc -w <<<"$file")" 1 "a bake, or a look whether one is needed, keeps what was translated"
is "$(stat -c %a "$file")" 400 "which nobody changes"
is "$(head -c 12 "$file")" "parbake-tb 2" "a file of translations says what it is"
ok "a sandbox's monitor maps it" maps_translations tiny
with=$(run sh -c "$work")
like "$with" '^42$' "a template with translations runs"
mv "$file" "$scratch/file"
without=$(run sh -c "$work")
is "$with" "$without" "code computes the same with translations and without"
not_ok "without translations nothing is mapped" maps_translations tiny

# programs lie where they lay when their translations were made, but where the recipe says otherwise
maps() { timeout 120 "$parbake" run "$1" -- sh -c 'cat /proc/self/maps' | cut -d ' ' -f 1; }
is "$(maps tiny)" "$(maps tiny)" "programs of emulated machines lie at the same addresses every time"
like_tiny tiny-random 's/^vcpus = 1/&\nrandomize_addresses = yes/' >"$scratch/tiny-random.ini"
echo 'programs = echo own >/dev/shm/own; cat /etc/tiny/motd' >>"$scratch/tiny-random.ini"
bake "$scratch/tiny-random.ini"
like "$(cat "$scratch/bake.out" "$scratch/bake.err")" 'program echo own .*: .* blocks of code, .* of translations' \
	"a bake says what the programs gave that a recipe names"
unlike "$(cat "$scratch/bake.out" "$scratch/bake.err")" 'program sh: ' \
	"and does not run its own where they would lie elsewhere"
is "$(timeout 120 "$parbake" run tiny-random -- cat /dev/shm/own)" own "the programs of the recipe ran before the capture"
not_ok "at random ones where the recipe says so" [ "$(maps tiny-random)" = "$(maps tiny-random)" ]
"$parbake" rm tiny-random

# two flipped bits in the middle: they would be executed
bits() { # FILE: flip them, and flip them back
	chmod 600 "$1"
	python3 - "$1" <<-'END'
		import os, sys
		size = os.path.getsize(sys.argv[1])
		with open(sys.argv[1], "r+b") as f:
		    for at in size // 2, size // 2 + 8:
		        f.seek(at)
		        byte = f.read(1)[0] ^ 16
		        f.seek(at)
		        f.write(bytes([byte]))
	END
	chmod 400 "$1"
}
cp "$scratch/file" "$file"
chmod 400 "$file"
ok "a copy of it is as good" maps_translations tiny
bits "$file"
not_ok "translations with two flipped bits are not used" maps_translations tiny
is "$(run sh -c "$work")" "$without" "what is computed is right"
run true 2>"$scratch/warning"
like "$(cat "$scratch/warning")" "$file is damaged.*remove it" "the warning says what to remove"
"$parbake" verify tiny >/dev/null 2>"$scratch/warning"
is "$?" 1 "damaged translations do not verify"
like "$(cat "$scratch/warning")" "$file is damaged" "which says so"
bits "$file"
like "$("$parbake" verify tiny)" "in the cache: 2 files, .* read in" "translations put back as they were verify, and the cost is told"
ok "translations put back as they were are used" maps_translations tiny

# another program's: the first byte of what identifies it
cp "$scratch/file" "$file"
chmod 600 "$file"
printf 'X' | dd of="$file" bs=1 seek=16 conv=notrunc status=none
chmod 400 "$file"
not_ok "what another program made is not used" maps_translations tiny
is "$(run echo fine)" fine "translations that another program made do no harm"
chmod 600 "$file" && truncate -s 100 "$file" && chmod 400 "$file"
is "$(run echo fine)" fine "half a file of translations does no harm"
rm "$file"
bake "$recipes/tiny.ini"
ok "what is missing is made again" [ -s "$file" ]
ok "gc keeps what a template needs" "$parbake" gc --keep-cache 0
ok "translations are made anew" [ -s "$file" ]
finish
