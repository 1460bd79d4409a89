#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Zygotes and keepers with real machines: leases, adoption, kills, and what is left (nothing).
. "$(dirname "$0")/lib.sh"
bake "$recipes/tiny.ini"
drive=$top/${BUILD:-build}/e2e/keeper_driver
export PARBAKE_EXE=$parbake

digest=$("$parbake" ls --json | python3 -c 'import json,sys
print([t["digest"] for t in map(json.loads, sys.stdin) if (t["name"], t["tag"]) == ("tiny", "latest")][0])')
# what a zygote finds out about this host the first time must leave nothing behind in it
rm -f "$PARBAKE_HOME"/cache/monitor-*.json
mkdir -m 700 "$scratch/sockets" "$scratch/captures"
# a host that has slept: CLOCK_BOOTTIME is far ahead of CLOCK_MONOTONIC. Leases are by the former
slept=()
unshare --time --boottime 1000000 --fork true 2>/dev/null && slept=(unshare --time --boottime 1000000 --fork)
timeout 600 "${slept[@]}" "$drive" tiny latest "$digest" "$scratch/sockets" "$scratch/captures" >"$scratch/drive" 2>"$scratch/drive.err"
status=$?
# its results are ours
grep -vE '^1\.\.' "$scratch/drive"
tail -n 20 "$scratch/drive.err" | sed 's/^/# /'
tap_n=$(grep -cE '^(not )?ok ' "$scratch/drive")
tap_bad=$(grep -cE '^not ok ' "$scratch/drive")
is $status 0 "the driver ends well"
finish
