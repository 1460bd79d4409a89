#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The host's disk, which the keys of one pool share: a key that fills it with paused sandboxes is stopped, others are not.
if [ "${1-}" != inside ] && [ "$(id -u)" = 0 ]; then
	exec unshare -m bash "$0" inside # a mount of its own
fi
. "$(dirname "$0")/lib.sh"
if [ "$(id -u)" != 0 ]; then
	skip "keys and the host's disk" "mounting needs root"
	finish
fi
bake "$recipes/tiny.ini"
own_run
mkdir -m 700 "$scratch/state"
mount -t tmpfs -o size=220m,mode=700 tmpfs "$scratch/state" || exit 1 # without it the test would say nothing
export PARBAKE="$parbake"
# key NAME: the key and its digest
key() { "$parbake" pool key "$1" | sed -nE 's/.*(e2b_[0-9a-f]+).*/\1/p; s/^digest = //p'; }
mapfile -t keys < <(key hoarder; key modest; key bounded)
python3 "$top/tests/e2e/pool_disk.py" "$scratch" "${keys[@]}"
r=$?
umount "$scratch/state"
exit $r
