#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Translations that are kept of machines with several processors: they are used, and eight processors that run them at
# once, make new ones beside them and throw some away compute what they compute without.
. "$(dirname "$0")/lib.sh"

if [ ! -x "$top/build/parbake-qemu" ]; then
	skip "translations of several processors" "the trimmed QEMU is not built; make monitor"
	finish
fi
export PARBAKE_ACCEL=tcg PARBAKE_TRAIN=off
like_tiny tiny-eight 's/^vcpus = 1/vcpus = 8/' >"$scratch/tiny-eight.ini"
bake "$scratch/tiny-eight.ini"
ok "a monitor with eight processors maps translations" maps_translations tiny-eight

# new processes all the time, on all processors
work='for i in 1 2 3 4 5 6 7 8; do
	(for j in 1 2 3 4 5 6; do seq $i 7 4000 | sort -r | md5sum; done | sort -u; cat /bin/bash | gzip | gunzip | md5sum) >/dev/shm/$i &
done; wait; cat /dev/shm/[1-8]; nproc'
run() { timeout 240 "$parbake" run tiny-eight -- sh -c "$work"; }
with=$(run)
is "$(wc -l <<<"$with")" 17 "all of eight processes end"
is "$(tail -n 1 <<<"$with")" 8 "on eight processors"

own=$scratch/without
mkdir -p -m 700 "$own/cache"
ln -s "$PARBAKE_HOME/store" "$own/store"
ln -s "$PARBAKE_HOME/cache/disks" "$own/cache/disks"
without=$(PARBAKE_HOME=$own run)
is "$with" "$without" "eight processes compute the same with translations and without"
"$parbake" rm tiny-eight
finish
