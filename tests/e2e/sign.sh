#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Signed versions: minisign verifies ours, we verify its own, and run, verify and a pool refuse what no listed key has signed.
. "$(dirname "$0")/lib.sh"
bake "$recipes/tiny.ini"
own_run
store=$scratch/store
ok "a store of its own" skopeo copy -q "oci:$PARBAKE_HOME/store:tiny" "oci:$store:tiny"
manifest=$store/blobs/sha256/$("$parbake" inspect tiny --store "$store" | python3 -c 'import json,sys; print(json.load(sys.stdin)["digest"].split(":")[1])')
cd "$scratch" || exit 1

refused() { # NAME PATTERN KEYS
	not_ok "$1: run refuses" timeout 60 "$parbake" run tiny --store "$store" --require-signature "$3" -- true
	like "$(cat "$scratch/err")" "$2" "$1: and says why"
	not_ok "$1: so does verify" "$parbake" verify tiny --store "$store" --require-signature "$3"
}
ok "a pair of keys" "$parbake" sign --new-key ours
ok "another" "$parbake" sign --new-key theirs --json
is "$(cat "$scratch/out")" '{"public":"theirs.pub","secret":"theirs"}' "what was made, as JSON"
is "$(stat -c %a ours)" 600 "the secret key is its owner's"
not_ok "a key is not written over" "$parbake" sign --new-key ours
refused "without a signature" "not signed" ours.pub
ok "sign" "$parbake" sign tiny --store "$store" --key ours --json
is "$(cat "$scratch/out")" "{\"digest\":\"sha256:$(basename "$manifest")\",\"name\":\"tiny\",\"tag\":\"latest\"}" "what was signed, as JSON"
ok "minisign verifies it" minisign -V -m "$manifest" -x "$(ls "$store"/signatures/*.minisig)" -p ours.pub
ok "run takes it" timeout 60 "$parbake" run tiny --store "$store" --require-signature ours.pub -- true
ok "verify, too" "$parbake" verify tiny --store "$store" --require-signature ours.pub
refused "by another key" "signed by key [0-9A-F]{16}, which is not listed" theirs.pub
refused "keys that are not there" "No such file" nothing.pub

ok "a key of minisign's own" minisign -G -W -p mini.pub -s mini.key
ok "a signature that minisign makes" minisign -S -W -s mini.key -m "$manifest" -x made.minisig
ok "a signature made by others is kept" "$parbake" sign tiny --store "$store" --signature made.minisig
ok "a signature made by others is verified" timeout 60 "$parbake" run tiny --store "$store" --require-signature mini.pub -- true
ok "minisign's key signs here, too" "$parbake" sign tiny --store "$store" --key mini.key
ok "as minisign finds" minisign -V -m "$manifest" -x "$(grep -l "$(sed -n 's/.*key //p' mini.pub | head -c 16)" "$store"/signatures/*.minisig | head -n 1)" -p mini.pub
is "$(find "$store/signatures" -type f | wc -l)" 2 "a version has one signature by each key"

# a signature of something else, under this version's name
echo other >other
minisign -S -W -s mini.key -m other -x other.minisig >/dev/null
ok "a signature of something else" "$parbake" sign tiny --store "$store" --signature other.minisig
refused "is found out" "is not of this" mini.pub

# a pool
cat >"$scratch/conf" <<END
[pool]
socket = $scratch/sock
state = $scratch/state
store = $store
require_signature = $scratch/theirs.pub
END
serve() {
	"$parbake" pool serve --config "$scratch/conf" 2>"$scratch/log" &
	daemon=$!
	trap 'kill $daemon 2>/dev/null; wait $daemon 2>/dev/null; rm -rf "$scratch"' EXIT
}
serve
ok "a pool" await 60 curl -sf --unix-socket "$scratch/sock" http://localhost/readyz
export PARBAKE_API=unix:$scratch/sock
not_ok "makes nothing of a version that is signed by others" timeout 120 "$parbake" create tiny
like "$(cat "$scratch/err" "$scratch/log")" "theirs.pub is required" "and says why"
"$parbake" sign tiny --store "$store" --key theirs >/dev/null
ok "once it is signed it does" await 60 "$parbake" create tiny
"$parbake" kill --all >/dev/null
kill $daemon
wait $daemon 2>/dev/null

# what gc takes
ok "the version goes" "$parbake" rm tiny --store "$store"
touch -d '1 hour ago' "$store"/blobs/sha256/*
ok "gc removes a template with its signature" "$parbake" gc --keep 0 --store "$store"
is "$(ls "$store/signatures")" "" "its signatures go"
finish
