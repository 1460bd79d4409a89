#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The commands that speak to a pool, against one that has no machines (fake_pool.py): what they ask, what they make of
# the answers, of those that are cut, endless or nonsense too. With real machines: tests/e2e/pool_*.sh.
. "$(dirname "$0")/../lib.sh"

unset PARBAKE_API_KEY
export PARBAKE_HOME=$scratch/home
socket=$scratch/pool.sock
export PARBAKE_API=unix:$socket
p() { timeout 60 "$parbake" "$@"; }
# status WORDS…: the exit status; what was said is in $scratch/out and err
status() {
	p "$@" >"$scratch/out" 2>"$scratch/err"
	echo $?
}
# asked EXPRESSION: of the newest request r, in Python
asked() { python3 -c "import json,sys; r=json.loads(open(sys.argv[1]).readlines()[-1]); print($1)" "$socket.log"; }
# json EXPRESSION: of what was printed
json() { python3 -c "import json,sys; d=[json.loads(l) for l in open(sys.argv[1])]; print($1)" "$scratch/out"; }

# nobody there
is "$(PARBAKE_API='' status ps)" 1 "no pool"
like "$(cat "$scratch/err")" "no pool answers at unix:.*/home/run/pool.sock \(No such file or directory\): .*pool serve" "which socket, and what to do"
is "$(status exec x -- true)" 125 "no pool for exec"
is "$(PARBAKE_API=ftp://example.org status ps)" 1 "an address of another kind"
like "$(cat "$scratch/err")" "PARBAKE_API=ftp://example.org: write unix:PATH" "says what it takes"
is "$(PARBAKE_API=http://127.0.0.1:1 status ps)" 1 "a port where nobody listens"
like "$(cat "$scratch/err")" "no pool answers at http://127.0.0.1:1 \(Connection refused\)" "says so"

python3 "$top/tests/cli/fake_pool.py" "$socket" 2>"$scratch/fake.err" &
fake=$!
trap 'kill $fake 2>/dev/null; wait $fake 2>/dev/null; rm -rf "$scratch"' EXIT
ok "the fake pool is there" await 20 p ps

# create
id=$(p create base --timeout 90s --metadata a=b --metadata c=d=e --env X=1 --allow example.org --allow www.example.org --auto-pause)
like "$id" '^sb[0-9]+bas$' "create prints the id"
is "$(asked '[r["body"][k] for k in ("templateID","timeout","metadata","envVars","autoPause","network")]')" \
	"['base', 90, {'a': 'b', 'c': 'd=e'}, {'X': '1'}, True, {'allowOut': ['example.org', 'www.example.org']}]" "and asks for what was said"
is "$(status create base --timeout 100ms)$(asked 'r["body"]["timeout"]')" 01 "a lease has whole seconds, at least one"
other=$(cat "$scratch/out")
is "$(status create base)$(asked '"timeout" in r["body"]')" 0False "a create without a time limit gets the pool's own"
is "$(status create none)" 1 "a template that is not there"
is "$(cat "$scratch/err")" 'parbake: there is no template "none": bake it' "the pool's words"
is "$(status create html)" 1 "an answer that is no pool's"
like "$(cat "$scratch/err")" "POST /sandboxes: unix:.* answered 502 without a reason" "an answer of 502 without a reason is told as such"
is "$(status create base --metadata x)" 2 "a pair without ="
is "$(status create)" 2 "no template"
is "$(status create base --json)$(json 'd[0]["state"]')" 0running "a created sandbox is shown as JSON"

# ps
is "$(status ps --quiet)" 0 "ps"
is "$(wc -l <"$scratch/out")" 11 "shows what runs, whatever the pages"
is "$(status ps)" 0 "ps prints a table"
like "$(cat "$scratch/out")" "^$id +base +running +[0-9]+s +1m[0-9]+s +1 +256.0 MiB +a=b,c=d=e" "age, lease, machine, metadata"
is "$(status ps --json)$(json 'len({s["sandboxID"] for s in d})')" 011 "ps --json prints every sandbox once"
is "$(status pause "$id")$(cat "$scratch/out")" "0$id" "pause"
is "$(status ps --quiet)$(grep -c . "$scratch/out")" 010 "a paused one is not shown"
is "$(status ps -aq)$(grep -c "$id" "$scratch/out")" 01 "ps --all has the paused sandboxes, too"
is "$(status pause "$id")" 1 "pause a paused one"
like "$(cat "$scratch/err")" "^parbake: pause $id: $id is paused already" "an error names the sandbox"
is "$(status resume "$id" --timeout 5m)$(asked 'r["body"]["timeout"]')" 0300 "resume"
is "$(status timeout "$id" 1h)$(asked 'r["body"]["timeout"]')" 03600 "timeout"
is "$(status timeout "$id" soon)" 2 "no duration"

# ids
short=${id%bas}
is "$(status logs "$short")$(asked 'r["path"]')" "0/sandboxes/$id/logs" "the beginning of an id will do"
is "$(status logs sb)" 1 "an id's beginning that several sandboxes have is refused"
like "$(cat "$scratch/err")" "sb: several sandboxes begin so \(sb.*, sb.*\); write more" "says so"
is "$(status logs nothere)" 1 "an id's beginning that no sandbox has is refused"
like "$(cat "$scratch/err")" "there is no sandbox nothere; see .parbake ps --all" "says so"
is "$(status logs ../templates)" 1 "a path is no id"
is "$(status logs "$id")$(tr '\n' , <"$scratch/out")" "0first,second," "logs"

# exec
is "$(status exec "$id" -- sh -c 'echo out; echo err >&2; exit 7' </dev/null)" 7 "exec: the status"
is "$(cat "$scratch/out") $(cat "$scratch/err")" "out err" "both streams of a command pass through"
is "$(asked 'r["path"] + " " + str(r["body"]["argv"][0]) + " " + str(r["body"]["stream"])')" "/sandboxes/$id/exec sh True" "a command without input is one request"
is "$(status exec "$id" -e A=1 -C / -u 7 --timeout 3s --shell 'echo $A; pwd' </dev/null)$(tr '\n' , <"$scratch/out")" "01,/," "env, cwd, shell"
is "$(asked '[r["body"][k] for k in ("env","cwd","timeout_ms","cmd")] + [r["headers"]["Authorization"]]')" \
	"[{'A': '1'}, '/', 3000, 'echo \$A; pwd', 'Basic Nzo=']" "are all asked for"
is "$(status exec "$id" -- sh -c 'kill -9 $$' </dev/null)" 137 "a signal"
is "$(status exec "$id" -- /no/such </dev/null)" 127 "no such command"
is "$(status exec "$id" --timeout 200ms -- sleep 30 </dev/null)" 124 "timed out"
like "$(cat "$scratch/err")" "timed out: everything it started was killed" "a time limit that passed is said"
is "$(status exec badout -- echo x </dev/null)" 0 "cut output"
like "$(cat "$scratch/err")" "standard output was cut: 2 bytes" "output that was cut is said"
ok "bytes that are no text" cmp <(head -c 1000000 /bin/bash) <(p exec "$id" -- head -c 1000000 /bin/bash </dev/null)
is "$(status exec "$id" --json -- sh -c 'printf "a\377"; exit 3' </dev/null)$(json '[d[0][k] for k in ("exit_code","signal","stdout","stdout_bytes","timed_out")]')" \
	"3[3, None, 'a�', 2, False]" "as JSON"
is "$(status exec badend -- true </dev/null)" 125 "an answer without an end is no success"
like "$(cat "$scratch/err")" "the answer ended before the command" "says so"
is "$(status exec badline -- true </dev/null)" 125 "a line without an end"
like "$(cat "$scratch/err")" "a line longer than 15728640 bytes" "an answer with too long a line is given up"
is "$(status exec "$id")" 2 "no command"
is "$(bash -c '"$0" exec "$1" -- echo hello >/dev/full </dev/null' "$parbake" "$id" 2>"$scratch/err"; echo $?)" 125 "a full disk behind standard output"
like "$(cat "$scratch/err")" "No space left" "a full standard output is told"

# what is no UTF-8 arrives as it was typed: arguments, a shell line, variables, a directory; with input and without
odd=$'caf\xe9 \xff' # not UTF-8
mkdir "$scratch/$odd"
for input in /dev/null "$scratch/pool.sock.log"; do
	is "$(p exec "$id" -C "$scratch/$odd" -e "ODD=$odd" -- sh -c 'printf "%s|%s|%s" "$1" "$ODD" "${PWD##*/}"' sh "$odd" <"$input" | od -An -c)" \
		"$(printf '%s|%s|%s' "$odd" "$odd" "$odd" | od -An -c)" "bytes of arguments, variables and a directory${input##*/}"
	is "$(p exec "$id" --shell "printf '%s' '$odd'" <"$input" | od -An -c)" "$(printf '%s' "$odd" | od -An -c)" "and of a shell line${input##*/}"
done

# exec with input
is "$(printf 'one\ntwo\n' | p exec "$id" -- wc -l | tr -d ' ')" 2 "standard input"
head -c 700000 /bin/bash >"$scratch/in"
ok "byte for byte, much of it" cmp "$scratch/in" <(p exec "$id" -- cat <"$scratch/in")
is "$(yes | p exec "$id" -- sh -c 'head -n 1; exit 5'; echo $?)" "$(printf 'y\n5')" "a command that reads no further"
is "$(echo x | p exec "$id" -- sh -c 'cat >&2; kill -TERM $$' 2>&1; echo $?)" "$(printf 'x\n143')" "a command's error output and its end by a signal pass through"
is "$(echo x | p exec "$id" -- /no/such 2>/dev/null; echo $?)" 127 "no such command"
is "$(echo x | p exec "$id" -e B=2 --shell 'echo $B')" 2 "shell and env"
echo 'stty size; test -t 0 && echo terminal; exit 4' | p exec "$id" -it -- sh >"$scratch/out" 2>"$scratch/err"
is $? 4 "a terminal: the status"
like "$(cat "$scratch/out")" '^terminal' "a command with -t has a terminal"
is "$(printf abc | p exec "$id" -it -- cat)$?" abcabc0 "input that ends within a line ends"
is "$(printf 'abc\n' | p exec "$id" -it -- cat | tr -d '\r' | tr '\n' ,)$?" abc,abc,0 "a terminal passes on input that ends with a line"
is "$(head -c 6000 /dev/zero | tr '\0' x | p exec "$id" -it -- wc -c 2>"$scratch/err" | tail -n 1 | tr -dc 0-9)$?" 40950 "a line too long for a terminal is cut"
like "$(cat "$scratch/err")" "a line of the input is longer than 4095 bytes" "a line that is too long for a terminal is said"
is "$(status exec "$id" -i -- cat <"$scratch")" 125 "input that cannot be read"
like "$(cat "$scratch/err")" "read standard input: Is a directory" "a standard input that cannot be read is an error, not an end"
python3 "$top/tests/cli/terminal.py" "$parbake" "$id" >"$scratch/tty.out" 2>&1
is "$(tail -n 1 "$scratch/tty.out" | tr -d '\r')" "24x80 then 30x100, raw, restored" "from a terminal: sizes, raw mode, put back"
is "$(python3 "$top/tests/cli/terminal.py" "$parbake" "$id" piped 2>&1 | tail -n 1 | tr -d '\r')" "24x80 then 30x100, raw, restored" "where its output goes into a pipe, too"

# cp, code
echo content >"$scratch/f"
chmod 750 "$scratch/f"
is "$(status cp "$scratch/f" "$id:/tmp/g")$(asked 'r["query"]["path"] + " " + r["query"]["mode"]')" "0/tmp/g 750" "cp in"
is "$(asked 'repr(r["query"].get("username"))')" "''" "a copy is root's, whatever the user of the template is"
is "$(status cp "$id:/tmp/g" "$scratch/back")$(cat "$scratch/back")" 0content "cp out"
is "$(status cp "$id:/tmp/g" -)$(cat "$scratch/out")" 0content "to standard output"
mkdir "$scratch/dir"
is "$(status cp "$id:/tmp/g" "$scratch/dir")$(cat "$scratch/dir/g")" 0content "into a directory"
is "$(status cp "$scratch/f" "$id:/tmp/")$(asked 'r["query"]["path"]')" 0/tmp/f "into a directory there"
is "$(status cp "$scratch/f" "$id:a b&c=ü?")$(asked 'r["query"]["path"]')" "0a b&c=ü?" "a name with everything in it"
: >"$scratch/empty"
is "$(status cp "$scratch/empty" "$id:e")$(status cp "$id:e" "$scratch/e")$(stat -c %s "$scratch/e")" 000 "an empty file"
is "$(status cp "$id:/none" "$scratch/none")" 1 "a file that is not there"
ok "leaves none here" test ! -e "$scratch/none"
truncate -s 64M "$scratch/shrinks"
is "$(status cp "$scratch/shrinks" "badcut:$scratch/shrinks")" 1 "a file that shrinks while it is sent"
like "$(cat "$scratch/err")" "became shorter while it was read" "a file that became shorter while it was read is told"
is "$(status cp /proc/self/status "$id:s")" 1 "a file that does not tell its size is refused"
is "$(status cp "badcut:/tmp/g" "$scratch/back2")" 1 "a file that is cut"
ok "a transfer that broke off is not kept" test ! -e "$scratch/back2"
is "$(find "$scratch" -name '.tmp-*' | wc -l)" 0 "a transfer that broke off leaves no part"
is "$(status cp "$scratch/f" "$scratch/g")" 2 "neither is in a sandbox"
is "$(status code "$id" --code '1 + 1')$(cat "$scratch/out")" "0printed
1 + 1" "code"
is "$(cat "$scratch/err")" warned "code's errors pass through"
is "$(echo 'raise x' | status code "$id")$(cat "$scratch/err")" "1Traceback: ValueError: no" "an exception"
is "$(status code "$id" --code 1 --json)$(json '[e["type"] for e in d]')" \
	"0['stdout', 'stderr', 'result', 'number_of_executions', 'end_of_execution']" "its events"

# the others
is "$(status fork "$id" -n 3)$(wc -l <"$scratch/out")" 03 "fork"
is "$(status fork badfork -n 2)$(wc -l <"$scratch/out")" 11 "a fork of which one failed"
like "$(cat "$scratch/err")" "fork badfork: no space left" "says why"
is "$(status snapshot "$id" --name mine)$(cat "$scratch/out")$(asked 'r["body"]["name"]')" 0snap1mine "snapshot"
is "$(status stats "$id" "$other")$(grep -cE '12.5% +3.0 MiB +40.0 MiB +1.0 MiB' "$scratch/out")" 02 "stats"
is "$(status stats badmetrics --json)$(json 'd[0]["metrics"]')" 0None "a sandbox that does not answer has no numbers"
is "$(status stats "$id" --json)$(json 'd[0]["metrics"]["cpuUsedPct"]')" 012.5 "stats are printed as JSON"
is "$(status kill "$id" nothere "$other")" 1 "kill: all but the one that is not there"
is "$(sort "$scratch/out" | tr '\n' ' ')" "$(printf '%s\n' "$id" "$other" | sort | tr '\n' ' ')" "are gone"
is "$(status kill "$id")" 1 "a second kill"
is "$(status kill --all)$(tr '\n' ' ' <"$scratch/err")" "1parbake: kill badkill: the machine is not gone after 10 s " "kill all, but one that will not go"
is "$(status ps -q)$(cat "$scratch/out")" 0badkill "the rest is gone"
is "$(status kill)" 2 "kill whom?"
is "$(status pool status)$(grep -cE '^base +latest +2/3 +1/1 +1 +1 +10 +1 +90%' "$scratch/out")" 01 "pool status"

# the load tool
doc() { python3 -c "import json,sys; s={x['name']: x for x in json.load(open(sys.argv[1]))['runs'][0]['series']}; print($1)" "$scratch/doc.json"; }
is "$(status bench load other -n 20 --concurrency 4 --until exec --save "$scratch/doc.json")" 0 "bench load"
is "$(doc '[s["create spare"]["n"] + s["create standby"]["n"], s["exec"]["n"], s["kill"]["n"], s["create spare"]["failed"]]')" "[20, 20, 20, 0]" \
	"counts every create, by what the pool had for it"
is "$(doc 'min(s["exec"]["total_ns"]) > min(s["create spare"]["total_ns"] + s["create standby"]["total_ns"])')" True "a first command takes longer"
is "$(status ps -q)$(cat "$scratch/out")" 0badkill "bench load leaves no sandbox"
is "$(status bench load other -n 10 --rate 200 --save "$scratch/doc.json")" 0 "an open loop"
is "$(doc 'sorted(round(a / 1e6) for n in s if n != "kill" for a in s[n]["at_ns"])')" "[0, 5, 10, 15, 20, 25, 30, 35, 40, 45]" "begins on time"
is "$(status bench load none -n 3 --save "$scratch/doc.json")$(doc 's["create"]["failed"]')" 13 "failures are counted"
like "$(cat "$scratch/out")" "3 × create: there is no template" "by kind"
is "$(PARBAKE_API=nowhere status bench load other -n 1)" 1 "an address that is none"
like "$(cat "$scratch/err")" "PARBAKE_API=nowhere: write unix:PATH" "a PARBAKE_API that leads nowhere is told"

# keys
kill $fake
wait $fake 2>/dev/null
python3 "$top/tests/cli/fake_pool.py" "$socket" s3cret 2>"$scratch/fake.err" &
fake=$!
await 20 env PARBAKE_API_KEY=s3cret "$parbake" ps -q >/dev/null 2>&1
is "$(status ps)" 1 "no key"
like "$(cat "$scratch/err")" "no valid API key \(PARBAKE_API_KEY is not set\)" "says so"
is "$(PARBAKE_API_KEY=wrong status ps)" 1 "a wrong key"
like "$(cat "$scratch/err")" "not the right one" "says so"
is "$(PARBAKE_API_KEY=s3cret status ps)" 0 "the right one"
finish
