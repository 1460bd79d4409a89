#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A template without translations, as one that was copied from another host: who serves it makes them, in the background
# and once, and everything that lists templates says whether they are there.
. "$(dirname "$0")/lib.sh"

if [ ! -x "$top/build/parbake-qemu" ]; then
	skip "translations of copied templates" "the trimmed QEMU is not built; make monitor"
	finish
fi
export PARBAKE_ACCEL=tcg
bake "$recipes/tiny.ini"
own_run
# a cache of its own, where there are none
rm "$PARBAKE_HOME/cache"
mkdir -m 700 "$PARBAKE_HOME/cache"
kept=$PARBAKE_HOME/cache/translations

listed() { "$parbake" ls --json | python3 -c 'import json, sys
for t in map(json.loads, sys.stdin):
    if t["name"] == "tiny": print(t["translations"])'; }
file() { ls "$kept"/* 2>/dev/null; }
is "$(listed)" missing "ls says that there are none"
like "$(doctor translations text)" "of.* tiny:latest.* slower" "doctor tells which template is slower, and what that means"
is "$(PARBAKE_TRAIN=off timeout 120 "$parbake" run tiny -- echo fine)" fine "a sandbox runs without them"
is "$(file)" "" "a run that was told not to makes no translations"
is "$(timeout 120 "$parbake" run tiny -- echo fine)" fine "a sandbox runs"
ok "translations are made in the background" await 120 file
made=$(file)
is "$(listed)" kept "ls says that they are there"
ok "the next sandbox has them" maps_translations tiny
timeout 120 "$parbake" run tiny -- true
is "$(file)" "$made" "translations are made once"

rm -rf "$kept"
unset PARBAKE_API_KEY
export PARBAKE_API=unix:$scratch/sock
printf '[pool]\nsocket = %s\nstate = %s\n[template tiny]\nspares = 1\n' "$scratch/sock" "$scratch/state" >"$scratch/conf"
mkdir -m 700 "$scratch/state"
"$parbake" pool serve --config "$scratch/conf" 2>"$scratch/log" &
daemon=$!
trap '{ "$parbake" kill --all; kill $daemon; wait $daemon; } >/dev/null 2>&1; rm -rf "$scratch"' EXIT
state() { curl -sS --max-time 60 --unix-socket "$scratch/sock" http://localhost/v1/pool | python3 -c 'import json, sys
print({t["name"]: t["translations"] for t in json.load(sys.stdin)["templates"]}.get("tiny"))'; }
ok "a pool that serves it answers" await 60 "$parbake" ps
ok "a daemon makes the translations that are missing" await 120 file
# shellcheck disable=SC2317 # called by await
is_kept() { [ "$(state)" = kept ]; }
ok "the pool's state says that they are there" await 60 is_kept
created=$("$parbake" create tiny)
is "$("$parbake" exec "$created" -- echo fine)" fine "a sandbox with translations runs"
finish
