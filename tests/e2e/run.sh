#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One sandbox for one command: statuses, streams, limits, files, errors.
. "$(dirname "$0")/lib.sh"
bake "$recipes/tiny.ini"

run() { timeout 60 "$parbake" run "$@"; }
status() { "$@" >"$scratch/out" 2>"$scratch/err" </dev/null; echo $?; }

is "$(status run tiny -- sh -c 'exit 7')" 7 "the exit status passes through"
is "$(status run tiny -- sh -c 'kill -9 $$')" 137 "a signal is 128 and its number"
is "$(status run tiny -- /no/such/program)" 127 "a program that is not there"
like "$(cat "$scratch/err")" "/no/such/program" "is named"
is "$(status run tiny -- /etc/passwd)" 126 "a file that is no program"
is "$(status run no-such -- true)" 125 "a template that is not there"
is "$(status run tinny -- true)" 125 "a misspelt template"
like "$(cat "$scratch/err")" "tiny" "gets the nearest name"
is "$(status run tiny)" 2 "no command is a usage error"
is "$(status run tiny -u nobody --code 1)" 2 "a user for the interpreter that is running is one, too"

is "$(run tiny -- sh -c 'echo out; echo err >&2' 2>/dev/null)" out "standard output apart"
is "$(run tiny -- sh -c 'echo out; echo err >&2' 2>&1 >/dev/null)" err "standard error apart"
is "$(printf 'a\nb\n' | run tiny -- cat)" "$(printf 'a\nb')" "standard input"
is "$(head -c 3000000 /dev/urandom | tee "$scratch/in" | run tiny -- sha256sum | cut -d' ' -f1)" \
	"$(sha256sum <"$scratch/in" | cut -d' ' -f1)" "three megabytes in, byte-exact"
is "$(run tiny -- cat <"$scratch/in" | sha256sum)" "$(sha256sum <"$scratch/in")" "and through"
is "$(run tiny -e A=1 --env B='x y' -- sh -c 'echo $A,$B')" "1,x y" "--env"
is "$(run tiny -C /tmp -- pwd)" /tmp "--cwd"
is "$(run tiny -u 1234:77 -- sh -c 'id -u; id -g' | tr '\n' ' ')" "1234 77 " "--user"
echo content >"$scratch/f"
is "$(run tiny -f "$scratch/f:/tmp/g" -- cat /tmp/g)" content "--file"
ok "--fetch" run tiny -o "/tmp/h:$scratch/h" -- sh -c 'echo fetched >/tmp/h'
is "$(cat "$scratch/h" 2>/dev/null)" fetched "and its content"
is "$(status run tiny -o "/big:$scratch/big" --shell 'truncate -s 1T /big')" 125 "a file larger than the machine"
like "$(cat "$scratch/err")" "larger than" "is not fetched"
is "$(find "$scratch" -name '.tmp*' -o -name big)" "" "and nothing of it is left"
is "$(run tiny --shell 'echo $((6*7))')" 42 "--shell"

# 127 and 126 are the command's own: what parbake could not do is 125
is "$(status run tiny -f /no/such:/tmp/x -- true)" 125 "a file to copy that is not there"
is "$(status run tiny -o "/no/such:$scratch/x" -- true)" 125 "a file to fetch that is not there"
is "$(status run tiny -C /no/such -- true)" 125 "a directory that is not there"
is "$(status run tiny -u no-such -- true)" 125 "a user that is not there"

# streams that are not there, or not taken
is "$(timeout 60 "$parbake" run tiny -- cat <&- 2>&1)" "" "a closed standard input is an empty one"
is "$(timeout 60 "$parbake" run tiny -- echo hidden 2>"$scratch/err" >&-; echo $?)" 125 \
	"a closed standard output is an error"
began=$SECONDS
is "$(run tiny -- yes 2>"$scratch/err" | head -n 1)" y "a reader that has enough"
like "$(cat "$scratch/err")" "Broken pipe" "ends the command"
ok "at once" test $((SECONDS - began)) -le 20

began=$SECONDS
is "$(status run tiny -t 1s --shell 'sleep 300 & sleep 300')" 124 "a timeout"
like "$(cat "$scratch/err")" "timed out after 1 s" "says so"
ok "a run whose time is up returns soon" test $((SECONDS - began)) -le 4
is "$(status run tiny -t 1s --shell 'setsid sh -c "trap : TERM HUP; sleep 300" & exec sleep 300')" 124 \
	"a grandchild that left the session holds nothing up"
is "$(status run tiny --shell 'sleep 300 & echo done')" 0 "a command is over when its main process is"

is "$(status run tiny --max-output 1K --shell 'head -c 5000 /dev/zero')" 0 "output past the limit"
is "$(wc -c <"$scratch/out")" 1024 "is cut there"
like "$(cat "$scratch/err")" "standard output was cut: 4.9 KiB written" "and marked"
json=$(run tiny --json --max-output 10 --shell 'echo 123456789012; exit 3')
like "$json" '"exit_code":3.*"stdout":"123456789\S*","stdout_bytes":13,"stdout_cut":true' "--json says it all"
# what the guest prints cannot break the JSON
ok "bytes that are not UTF-8 in --json" eval \
	"run tiny --json --shell 'printf \"\\\\377\\\\000\\\\033\"' | python3 -c 'import json,sys; json.load(sys.stdin)'"

# hostile: a fork bomb and an out-of-memory kill take neither the agent nor us along
# (the bomb of as many processes as its template allows: without that bound, which of timeout and lack of memory ends it is chance)
cp -r "$recipes/." "$scratch/r"
printf '[template]\nfrom = tiny\n[limits]\npids = 100\n' >"$scratch/r/limited.ini"
bake "$scratch/r/limited.ini"
is "$(status run limited -t 5s --shell 'f() { f | f & }; f; sleep 100')" 124 "a fork bomb is ended by the timeout"
like "$(cat "$scratch/err")" "Cannot fork" "and could not grow beyond the template's bound"
run tiny -t 20s --shell 'tail /dev/zero; echo "after: $?"' >"$scratch/out" 2>"$scratch/err"
like "$(cat "$scratch/out" "$scratch/err")" "after: 137|out of memory" "a memory hog is killed, the machine stays"

# stopped by a signal: nothing stays
"$parbake" run tiny -- sleep 300 &
pid=$!
ok "a run's machine runs" await 10 eval "monitors $pid"
qemu=$(monitors $pid)
kill -9 $pid
wait $pid 2>/dev/null
ok "kill -9 of parbake ends the machine" await 2 gone "${qemu:-1}"
ok "the pager ends after its last machine" await 5 eval "[ -z \"\$(find $PARBAKE_HOME/run -type s)\" ]"
is "$(find "$PARBAKE_HOME/run" -type f ! -name '*lock*' ! -name tsc.json | wc -l)" 0 "no file is left"
finish
