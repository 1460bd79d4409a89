#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A sandbox that is resumed and has not got all of its memory yet, as its pager is slow: paused at once, its daemon
# killed, its memory refused. What it held is never lost.
. "$(dirname "$0")/lib.sh"
bake "$recipes/tiny.ini"
own_run

unset PARBAKE_API_KEY
export PARBAKE_API=unix:$scratch/sock
mkdir -m 700 "$scratch/state"
cat >"$scratch/conf" <<END
[pool]
socket = $scratch/sock
state = $scratch/state
END
trap '{ "$parbake" kill --all; kill $daemon; wait $daemon; } >/dev/null 2>&1; rm -rf "$scratch"' EXIT

# serve FAULT
serve() {
	PARBAKE_FAULT=$1 "$parbake" pool serve --config "$scratch/conf" 2>>"$scratch/log" &
	daemon=$!
	await 60 p ps >/dev/null 2>&1
}
stop() {
	"$parbake" kill --all >/dev/null 2>&1
	kill "$daemon"
	wait "$daemon" 2>/dev/null
}
p() { timeout 120 "$parbake" "$@"; }
state() { p ps --all --json | python3 -c 'import json,sys
print({d["sandboxID"]: d["state"] for d in map(json.loads, sys.stdin)}.get(sys.argv[1], "gone"))' "$1"; }
is_in() { [ "$(state "$1")" = "$2" ]; }
held() { p exec "$1" --shell 'sha256sum </run/held'; }
paused() { # → $id, $want: a paused one that holds much
	id=$(p create tiny --timeout 1h)
	want=$(p exec "$id" --shell 'head -c 12000000 /dev/urandom >/run/held; sha256sum </run/held')
	like "$want" '^[0-9a-f]{64}' "a sandbox holds something"
	ok "the sandbox is paused" p pause "$id"
}
captures() { (cd "$scratch/state/captures" && echo *-*); }
one_is() { [ "$(captures)" = "$1" ]; }

serve restore.pager.own=10ms
paused
ok "the sandbox is resumed while its memory is copied" p resume "$id" --timeout 1h
is "$(captures)" "$id-1" "what it came from stays while its memory comes in"
ok "a resumed sandbox is paused at once" p pause "$id"
is "$(captures)" "$id-2" "what it came from is gone when it is in another"
ok "the sandbox that was paused at once is resumed" p resume "$id" --timeout 1h
is "$(held "$id")" "$want" "a sandbox that was paused at once has all that it held"
ok "the sandbox is paused at once a second time" p pause "$id"
ok "the sandbox is resumed, and paused once more" p resume "$id" --timeout 1h
is "$(captures)" "$id-3" "what it came from is there"
kill -9 "$daemon"
wait "$daemon" 2>/dev/null
serve restore.pager.own=10ms
ok "the next daemon finds it running" is_in "$id" running
ok "a resumed sandbox lets its capture go when it has all of its memory" await 60 one_is '*-*'
is "$(held "$id")" "$want" "a sandbox that has settled holds what it held"
is "$(ls "$scratch/state/paused")" "" "no record says that it is paused"
ok "two forks of it" p fork "$id" -n 2
for fork in $(p ps --json | python3 -c 'import json,sys
for d in map(json.loads, sys.stdin): print(d["sandboxID"])'); do
	is "$(held "$fork")" "$want" "each holds it"
done
stop

serve restore.pager.own:20=ENOMEM
paused
p resume "$id" --timeout 1h >/dev/null 2>&1 # whether it was told in time is another matter
ok "a sandbox whose memory cannot be given to it is paused again" await 60 is_in "$id" paused
is "$(captures)" "$id-1" "a sandbox that was paused again is in the capture that it came from"
ok "the sandbox that was paused again is resumed" p resume "$id" --timeout 1h
is "$(held "$id")" "$want" "a sandbox that was paused again has all that it held"
stop
finish
