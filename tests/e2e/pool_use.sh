#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A pool as its users have it, with real machines: the commands, leases that end, pauses (also where the disk is full),
# forks, three generations of snapshots, clients that go away. What the commands make of strange answers: tests/cli/client.sh.
. "$(dirname "$0")/lib.sh"
bake "$recipes/tiny.ini"
own_run

unset PARBAKE_API_KEY
export PARBAKE_API=unix:$scratch/sock
# a store of its own, for what is published here
cp -r "$PARBAKE_HOME/store/" "$scratch/store"
cat >"$scratch/conf" <<END
[pool]
socket = $scratch/sock
state = $scratch/state
store = $scratch/store
[template tiny]
spares = 1
standbys = 1
END
mkdir -m 700 "$scratch/state"
small=false # is the state's file system one that a test may fill?
[ "$(id -u)" = 0 ] && mount -t tmpfs -o size=256m,mode=700 none "$scratch/state" 2>/dev/null && small=true
"$parbake" pool serve --config "$scratch/conf" 2>"$scratch/log" &
daemon=$!
trap '{ "$parbake" kill --all; kill $daemon; wait $daemon; umount "$scratch/state"; } >/dev/null 2>&1; rm -rf "$scratch"' EXIT

p() { timeout 120 "$parbake" "$@"; }
status() {
	p "$@" >"$scratch/out" 2>"$scratch/err"
	echo $?
}
state() { p ps --all --json | python3 -c 'import json,sys
print({d["sandboxID"]: d["state"] for d in map(json.loads, sys.stdin)}.get(sys.argv[1], "gone"))' "$1"; }
is_in() { [ "$(state "$1")" = "$2" ]; }
ask() { curl -sS --max-time 60 --unix-socket "$scratch/sock" "http://localhost$1" "${@:2}"; }

ok "the pool answers" await 60 p ps
full() { p pool status --json | python3 -c 'import json,sys
t = [t for t in json.load(sys.stdin)["templates"] if t["name"] == "tiny"][0]
sys.exit(t["spares"] < 1 or t["standbys"] < 1)'; }
ok "a pool makes its spare and its standby" await 120 full

# commands
id=$(p create tiny --env GREETING=hello --metadata for=test)
ok "create" test -n "$id"
is "$(p exec "$id" --shell 'echo $GREETING $TINY')" "hello yes it is" "its variables, and the template's"
is "$(status exec "$id" -- sh -c 'echo out; echo err >&2; exit 7')$(cat "$scratch/out" "$scratch/err" | tr '\n' ' ')" "7out err " "streams and status"
head -c 1000000 /dev/urandom >"$scratch/in"
ok "a million bytes through a command" cmp "$scratch/in" <(p exec "$id" -- cat <"$scratch/in")
is "$(status exec "$id" -- /no/such)$(status exec "$id" -- /etc/hostname)" 127126 "what cannot run"
is "$(echo | status exec "$id" -- /no/such)$(echo | status exec "$id" -- /etc/hostname)" 127126 "with input"
is "$(status exec "$id" --timeout 500ms -- sleep 60)$(status exec "$id" -- sh -c 'kill -9 $$')" 124137 "timed out; killed"
is "$(printf abc | p exec "$id" -it -- cat)$?" abcabc0 "a pipe into a terminal that ends within a line ends the command"
is "$(printf 'abc\n' | p exec "$id" -it -- cat | tr -d '\r' | tr '\n' ,)" abc,abc, "and one that ends behind a line"
is "$(head -c 6000 /dev/zero | tr '\0' x | p exec "$id" -it -- wc -c 2>/dev/null | tail -n 1 | tr -dc 0-9)" 4095 \
	"and one with a line that is too long for a terminal"
is "$(python3 "$top/tests/cli/terminal.py" "$parbake" "$id" 2>&1 | tail -n 1 | tr -d '\r')" "24x80 then 30x100, raw, restored" "a terminal"
chmod 751 "$scratch/in"
ok "cp in" p cp "$scratch/in" "$id:/srv/"
is "$(p exec "$id" -- stat -c '%a %s' /srv/in)" "751 1000000" "with its mode"
ok "cp out" p cp "$id:/srv/in" "$scratch/back"
ok "the same bytes" cmp "$scratch/in" "$scratch/back"
like "$(p stats "$id")" "$id +tiny +running +[0-9.]+% +[0-9.]+ [KM]iB +[0-9.]+ [KM]iB" "stats: memory private and shared"
like "$(p ps)" "$id +tiny +running .*for=test" "ps"
like "$(ask "/sandboxes/$id")" '"mode": ?"spare"' "it was a spare"

# leases
short=$(p create tiny --timeout 2s)
ok "a lease that ends" await 20 is_in "$short" gone
long=$(p create tiny --timeout 3s)
p timeout "$long" 1h >/dev/null
resting=$(p create tiny --timeout 2s --auto-pause)
p exec "$resting" --shell 'echo memory >/dev/shm/kept; echo disk >/srv/kept; sync' >/dev/null
ok "one that ends in a pause" await 20 is_in "$resting" paused
is "$(state "$long")" running "one that was made longer goes on"
is "$(status exec "$resting" -- true)" 125 "a paused one runs nothing"
is "$(status resume "$resting" --timeout 1h)" 0 "it is resumed"
is "$(p exec "$resting" -- cat /dev/shm/kept /srv/kept | tr '\n' ' ')" "memory disk " "as it was"
is "$(status resume "$resting")" 1 "one that runs is not resumed"
like "$(ask "/sandboxes/$resting")" '"onTimeout": ?"pause"' "without autoPause a resume leaves what its lease's end does"
is "$(status pause "$resting")" 0 "it is paused again"
like "$(ask "/sandboxes/$resting/resume" -d '{"timeout": 3600, "autoPause": false}')" "$resting" "and resumed with autoPause"
like "$(ask "/sandboxes/$resting")" '"onTimeout": ?"kill"' "which holds from then on"

# a create whose client goes away is a sandbox with a lease, or none
before=$(p ps --all --quiet | wc -l)
for i in 1 2 3 4 5; do
	timeout -s KILL 0.0$((RANDOM % 9 + 1)) curl -s --unix-socket "$scratch/sock" http://localhost/sandboxes \
		-d '{"templateID": "tiny", "timeout": 10}' >/dev/null
done 2>/dev/null
ok "creates whose clients have gone are made" test "$(p ps --all --quiet | wc -l)" -gt "$before"
as_before() { [ "$(p ps --all --quiet | wc -l)" -eq "$before" ]; }
ok "sandboxes end with their lease" await 60 as_before

# three generations, with memory and disk of each
p exec "$id" --shell 'echo one >/dev/shm/gen; echo one >/srv/gen; sync' >/dev/null
first=$(p snapshot "$id")
p exec "$id" --shell 'echo one again >/dev/shm/gen' >/dev/null
second_sb=$(p create "$first")
is "$(p exec "$second_sb" -- cat /dev/shm/gen /srv/gen | tr '\n' ' ')" "one one " "a sandbox from a snapshot"
is "$(p exec "$id" -- cat /dev/shm/gen)" "one again" "which went on meanwhile"
ok "another snapshot of it" p exec "$second_sb" --shell 'echo two >>/dev/shm/gen; echo two >>/srv/gen; sync'
second=$(p snapshot "$second_sb")
third_sb=$(p create "$second")
p exec "$third_sb" --shell 'echo three >>/dev/shm/gen; echo three >>/srv/gen; sync' >/dev/null
is "$(status snapshot "$third_sb" --name grown:v3)$(cat "$scratch/out")" 0grown:v3 "the third, published as a template"
like "$(p ls --store "$scratch/store")" '^grown +v3 ' "is in the store"
was=$(p inspect grown:v3 --store "$scratch/store" | sha256sum)
is "$(status snapshot "$second_sb" --name grown:v3)" 1 "another of that name is refused"
like "$(cat "$scratch/err")" 'there is a template "grown:v3"' "and why"
is "$(p inspect grown:v3 --store "$scratch/store" | sha256sum)" "$was" "it is what it was"
is "$(status snapshot "$third_sb" --name grown:v3 --replace)$(cat "$scratch/out")" 0grown:v3 "unless it is to be replaced"
ok "which it is" test "$(p inspect grown:v3 --store "$scratch/store" | sha256sum)" != "$was"
ok "a published snapshot is right, byte for byte" p verify grown:v3 --store "$scratch/store"
grown=$(p create grown:v3)
is "$(p exec "$grown" -- cat /dev/shm/gen /srv/gen | tr '\n' ' ')" "one two three one two three " "a sandbox of the last snapshot has all three marks"

# forks are alike, and are not the same
mapfile -t forks < <(p fork "$grown" -n 3)
is "${#forks[@]}" 3 "three forks"
is "$(for f in "${forks[@]}"; do p exec "$f" -- cat /dev/shm/gen; done | sort | uniq -c | tr -s ' \n' ' ')" " 3 one 3 three 3 two " "have what it had"
is "$(for f in "$grown" "${forks[@]}"; do p exec "$f" -- cat /proc/sys/kernel/random/uuid; done | sort -u | wc -l)" 4 "and no random number in common"
is "$(for f in "$grown" "${forks[@]}"; do p exec "$f" -- cat /etc/machine-id; done | sort -u | wc -l)" 4 "nor a machine id"

# forks of a paused one need it no longer, once they are asked for
of=$(p create tiny)
p exec "$of" --shell 'echo forked >/dev/shm/gen' >/dev/null
is "$(status pause "$of")" 0 "one is paused"
made() { p pool status --json | python3 -c 'import json,sys
print([t["sandboxes"] for t in json.load(sys.stdin)["templates"] if t["name"] == "tiny"][0])'; }
before=$(made)
ask "/sandboxes/$of/fork" -d '{"count": 8}' >"$scratch/forks" &
asked=$!
begun() { [ "$(made)" -ge "$1" ]; }
ok "eight forks of it are under way" await 60 begun $((before + 8))
is "$(status kill "$of")" 0 "it is killed meanwhile"
wait "$asked"
mapfile -t forks < <(python3 -c 'import json,sys
print(*(d["sandbox"]["sandboxID"] if "sandbox" in d else d["error"]["message"] for d in json.load(open(sys.argv[1]))), sep="\n")' "$scratch/forks")
is "$(for f in "${forks[@]}"; do p exec "$f" -- cat /dev/shm/gen 2>&1; done | uniq -c | tr -s ' \n' ' ')" " 8 forked " "all of them run"
is "$(status kill "${forks[@]}")" 0 "and end"

# no space left while pausing
if $small; then
	head -c 300M /dev/zero >"$scratch/state/filler" 2>/dev/null
	is "$(status pause "$grown")" 1 "a pause for which there is no space"
	like "$(cat "$scratch/err")" "pause $grown: .*No space left" "says so"
	is "$(state "$grown")" running "the sandbox still runs"
	is "$(p exec "$grown" --shell 'echo more >>/dev/shm/gen; tail -n 1 /dev/shm/gen')" more "and works"
	nothing_left() { [ -z "$(find "$scratch/state" -name "$grown*")$(ls "$scratch/state/trash")" ]; }
	ok "nothing is left of the try" await 10 nothing_left
	rm "$scratch/state/filler"
	is "$(status pause "$grown")$(state "$grown")" 0paused "with space it is paused"
else
	skip "a pause without space" "nothing may be mounted here"
fi

# a kill is answered when the machine is gone
is "$(status kill "$long" "$resting")" 0 "kill"
is "$(state "$long")$(state "$resting")" gonegone "both are gone"
is "$(status kill "$long")" 1 "a second kill"
like "$(cat "$scratch/err")" "there is no sandbox $long" "says so"
is "$(status kill --all)" 0 "kill all"
is "$(p ps --all --quiet)" "" "nothing is left"
finish
