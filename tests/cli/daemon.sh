#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The pool's daemon without machines: sockets, keys, signals, what it tells a service manager; its configuration.
# With machines: tests/e2e/pool_*.sh.
. "$(dirname "$0")/../lib.sh"

unset PARBAKE_API_KEY PARBAKE_API
export PARBAKE_HOME=$scratch/home
socket=$scratch/home/run/pool.sock
conf=$scratch/pool.conf
pids=()
trap '{ kill -9 "${pids[@]}"; wait; } 2>/dev/null; rm -rf "$scratch"' EXIT

# serve NAME [ARGS…]: start a daemon, wait until it answers; its process is $daemon, its log $scratch/NAME
serve() {
	local name=$1
	shift
	: >"$scratch/$name"
	"$parbake" pool serve "$@" 2>"$scratch/$name" &
	daemon=$!
	pids+=("$daemon")
	await 20 grep -q "the pool answers" "$scratch/$name"
}
# stop [SIGNAL]: end it; $ended: its status
stop() {
	kill "-${1:-TERM}" "$daemon"
	{ wait "$daemon"; ended=$?; } 2>/dev/null
}
ask() { timeout 60 python3 "$top/tests/cli/ask.py" "$@"; }
# status ARGS…: of an answer, its body in $scratch/body
status() {
	ask "$@" >"$scratch/answer" 2>"$scratch/err" || { cat "$scratch/err"; return; }
	sed 1d "$scratch/answer" >"$scratch/body"
	head -n 1 "$scratch/answer"
}

# configurations
is "$("$parbake" pool check >"$scratch/out" 2>&1; echo $?)" 0 "the defaults are good"
like "$(cat "$scratch/out")" "the default configuration is good: socket $socket, state $scratch/home/" "pool check tells the defaults"
printf '[pool]\ntimeuot = 5m\n' >"$conf"
is "$("$parbake" pool check --config "$conf" "$conf" >"$scratch/out" 2>&1; echo $?)" 2 "pool check takes one file at a time"
not_ok "a configuration with a slip is refused" "$parbake" pool check "$conf"
is "$(cat "$scratch/err")" "parbake: $conf:2: [pool] timeuot: unknown key; did you mean timeout?" "the error says where the slip is, and what was meant"
not_ok "a configuration with a slip is not served" "$parbake" pool serve --config "$conf"
not_ok "a configuration that is not there is not served" "$parbake" pool serve --config "$scratch/none.conf"
like "$(cat "$scratch/err")" "none.conf: No such file" "which is named"
ok "the example is good" "$parbake" pool check "$top/pool/daemon/pool.conf"
sed -E 's/^#([a-z_]+ = |\[)/\1/; s/sha256:…/sha256:'"$(printf '%064d' 7)/" "$top/pool/daemon/pool.conf" >"$conf"
ok "the sample configuration is good with all that it hints at" "$parbake" pool check "$conf"
ok "named as it is to serve" "$parbake" pool check --config "$conf"
like "$(cat "$scratch/out")" "template code-interpreter:latest: standbys auto \(at most 8\), spares auto \(at most 8\)" "which says so"

# keys
ok "a key" "$parbake" pool key ci
key=$(grep -o 'e2b_[0-9a-f]*' "$scratch/out")
is "$(sed -n 's/^digest = sha256://p' "$scratch/out")" "$(printf %s "$key" | sha256sum | cut -d' ' -f1)" "pool key prints the key's digest"
{ printf '[pool]\nlisten = 127.0.0.1:PORT\ntimeout = 1m\n'; grep -v '^#' "$scratch/out"; } >"$conf.in"
not_ok "a name that is none" "$parbake" pool key 'a b'
not_ok "no name" "$parbake" pool key

# the unix socket
serve one
is "$(status "$socket" GET /healthz)" 200 "the daemon answers"
is "$(stat -c %a "$socket")" 600 "the daemon's socket is private"
is "$(stat -c %a "$(dirname "$socket")")" 700 "the directory of the daemon's socket is private"
is "$(status "$socket" GET /readyz)" 200 "the daemon is ready"
is "$(status "$socket" GET /v1/pool)" 200 "the daemon tells of itself"
is "$(python3 -c 'import json,sys; p=json.load(open(sys.argv[1])); print(p["ready"], p["templates"], p["sandboxes"]["running"])' "$scratch/body")" \
	"True [] 0" "in JSON"
is "$(status "$socket" GET /metrics)" 200 "metrics"
like "$(cat "$scratch/body")" '^parbake_sandboxes\{state="running"\} 0$' "metrics are in their format"
is "$(awk '/^#/ { next } !/^[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? [-+0-9.e]+$/ && NF' "$scratch/body")" "" \
	"each line of them"
is "$(status "$socket" POST /healthz)" 405 "what can only be read"
is "$(status "$socket" GET /no/such)" 404 "what is not there"
is "$(cat "$scratch/body")" '{"code":404,"message":"there is no GET /no/such"}' "an unknown path is answered in the API's form"
is "$(status "$socket" GET /sandboxes/abc/files)" 404 "a sandbox that is not there"
is "$(status -H 'Host: 49983-abc.parbake.localhost' "$socket" GET /health)" 502 \
	"a sandbox that is not there is a bad gateway at its host name, as SDKs expect"
is "$(cat "$scratch/body")" '{"code":502,"message":"The sandbox was not found","sandboxId":"abc"}' "a sandbox that is not there is told in the words that SDKs look for"
is "$(status -H 'E2b-Sandbox-Id: ../../x' "$socket" GET /health)" 502 "a name that is none is a sandbox that is not there"
ok "status" "$parbake" pool status
not_ok "a second daemon on the same state" timeout 20 "$parbake" pool serve
like "$(cat "$scratch/err")" "state|daemon" "says why"
printf '[pool]\nstate = %s\nsocket = %s\n' "$scratch/state2" "$socket" >"$conf"
not_ok "a second daemon on the same socket is refused" timeout 20 "$parbake" pool serve --config "$conf"
like "$(cat "$scratch/err")" "another daemon answers at $socket" "says why"
is "$(status "$socket" GET /healthz)" 200 "the first is not disturbed"
stop
is "$ended" 0 "the daemon ends when it is told to"
not_ok "the socket of a daemon that ended is gone" test -e "$socket"

# a killed one leaves its socket
serve two
stop KILL
is "$ended" 137 "a daemon is killed"
ok "the socket of a killed daemon stays" test -S "$socket"
serve three
is "$(status "$socket" GET /healthz)" 200 "the next one takes its place"
stop INT
is "$ended" 0 "the daemon ends on SIGINT, too"
echo precious >"$socket"
not_ok "a file in the socket's place" timeout 20 "$parbake" pool serve
like "$(cat "$scratch/err")" "is there and no socket" "a file in the socket's place is not replaced"
is "$(cat "$socket")" precious "a file in the socket's place is not touched"
rm "$socket"
mkdir -m 777 "$scratch/open"
chmod 777 "$scratch/open"
printf '[pool]\nsocket = %s\n' "$scratch/open/sock" >"$conf"
not_ok "a directory that others may write into" timeout 20 "$parbake" pool serve --config "$conf"
like "$(cat "$scratch/err")" "others may write into $scratch/open" "a directory that others may write into is refused"

# TCP and keys; a service manager
port=$(python3 -c 'import socket; s=socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
sed "s/PORT/$port/" "$conf.in" >"$conf"
python3 "$top/tests/cli/listen.py" "$scratch/notify" "$scratch/told" &
pids+=($!)
await 10 test -S "$scratch/notify"
export NOTIFY_SOCKET=$scratch/notify WATCHDOG_USEC=200000
serve four --config "$conf"
unset NOTIFY_SOCKET WATCHDOG_USEC
ok "the manager is told that it is ready" await 10 grep -q '^READY=1' "$scratch/told"
ok "the service manager is told that the daemon is alive" await 10 sh -c "[ \$(grep -c '^WATCHDOG=1' '$scratch/told') -ge 4 ]"
is "$(status "127.0.0.1:$port" GET /healthz)" 200 "health needs no key"
is "$(status "127.0.0.1:$port" GET /v1/pool)" 401 "over TCP all else needs one"
is "$(status -H "X-API-Key: $key" "127.0.0.1:$port" GET /v1/pool)" 200 "a key is taken as X-API-Key"
is "$(status -H "Authorization: Bearer $key" "127.0.0.1:$port" GET /v1/pool)" 200 "a key is taken as Authorization"
is "$(status -H "X-API-Key: ${key}0" "127.0.0.1:$port" GET /v1/pool)" 401 "a wrong one is refused"
is "$(status -H "X-API-Key: ${key}0" "$socket" GET /v1/pool)" 401 "everywhere"
is "$(status "$socket" GET /v1/pool)" 200 "this user needs none at the unix socket"
if [ "$(id -u)" = 0 ]; then
	chmod 711 "$scratch" "$scratch/home" "$scratch/home/run"
	chmod 666 "$socket"
	is "$(setpriv --reuid 65534 --clear-groups /usr/bin/python3 - "$socket" GET /v1/pool <"$top/tests/cli/ask.py" | sed -n 1p)" 401 \
		"another user does, where keys are configured"
	chmod 700 "$scratch/home/run"
else
	skip "another user needs a key" "only root can be another user"
fi
not_ok "no key is in its log" grep -q "$key" "$scratch/four"

# SIGHUP
sed -i 's/timeout = 1m/timeout = 48h/' "$conf"
kill -HUP "$daemon"
ok "a bad configuration is logged" await 10 grep -q "the configuration stays as it was: .*longer than max_timeout" "$scratch/four"
is "$(status -H "X-API-Key: $key" "127.0.0.1:$port" GET /v1/pool)" 200 "the old configuration stays where the new one is refused"
sed -i "s/timeout = 48h/timeout = 2m/; s/$port/1/" "$conf"
kill -HUP "$daemon"
ok "a configuration that moves the socket is refused" await 10 grep -q "listen cannot change while the daemon runs" "$scratch/four"
sed -i "s/127.0.0.1:1$/127.0.0.1:$port/; s/^digest = .*/digest = sha256:$(printf '%064d' 1)/" "$conf"
kill -HUP "$daemon"
ok "a good one is taken" await 10 grep -q "was read anew" "$scratch/four"
is "$(status -H "X-API-Key: $key" "127.0.0.1:$port" GET /v1/pool)" 401 "a key that is no more in it is refused"
ok "the manager is told of it" await 10 grep -q '^RELOADING=1' "$scratch/told"
stop
is "$ended" 0 "the daemon ends after its configurations"
ok "the manager is told of that" await 10 grep -q '^STOPPING=1' "$scratch/told"
finish
