#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a client, with a key or without, may do to the daemon by what it sends: to its log, its answers, its connections.
. "$(dirname "$0")/../lib.sh"

unset PARBAKE_API_KEY PARBAKE_API http_proxy https_proxy
export PARBAKE_HOME=$scratch/home PARBAKE_LOG=debug
socket=$scratch/home/run/pool.sock
log=$scratch/log
daemon=
holder=
trap '{ exec 7>&-; [ -z "$daemon" ] || kill -9 "$daemon"; [ -z "$holder" ] || kill -9 "$holder"; wait; } 2>/dev/null; rm -rf "$scratch"' EXIT

ask() { timeout 60 python3 "$top/tests/cli/ask.py" "$@"; }
# status ARGS…: of an answer, its body in $scratch/body
status() {
	ask "$@" >"$scratch/answer" 2>"$scratch/err" || { cat "$scratch/err"; return; }
	sed 1d "$scratch/answer" >"$scratch/body"
	head -n 1 "$scratch/answer"
}

"$parbake" pool key ci >"$scratch/key"
key=$(grep -o 'e2b_[0-9a-f]*' "$scratch/key")
port=$(python3 -c 'import socket; s=socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
{ printf '[pool]\nlisten = 127.0.0.1:%s\n' "$port"; grep -v '^#' "$scratch/key"; } >"$scratch/conf"
"$parbake" pool serve --config "$scratch/conf" 2>"$log" &
daemon=$!
ok "a daemon with a key serves TCP" await 20 grep -q "the pool answers" "$log"

# its log
is "$(status "127.0.0.1:$port" GET '/a%0aparbake:%20error:%20forged%0d%1b%5b2J')" 401 "a path may hold a line's end, percent-encoded"
is "$(status -H "X-API-Key: $key" "127.0.0.1:$port" GET '/a%0aparbake:%20error:%20forged%0d%1b%5b2J')" 404 "a forged path is 404 with a key, too"
like "$(cat "$log")" '/a\\x0aparbake: error: forged\\x0d\\x1b\[2J' "the log shows it as text"
is "$(grep -c '^parbake: error: forged' "$log")" 0 "no line of the log is a client's"
not_ok "no control character is in the log" grep -qP '[\x00-\x08\x0b-\x1f\x7f]' "$log"

# what errors tell of the host
is "$(status -H "X-API-Key: $key" "127.0.0.1:$port" POST /sandboxes '{"templateID":"nothing"}')" 404 "a template that is not there is not found"
like "$(cat "$scratch/body")" 'nothing' "the answer names it"
unlike "$(cat "$scratch/body")" "$scratch" "an error does not tell where the store lies"
like "$(cat "$log")" "no template .*$scratch/home" "which is in the log"

# parts of requests
mkfifo "$scratch/hold"
python3 "$top/tests/cli/hold.py" "127.0.0.1:$port" 300 "$key" <"$scratch/hold" >"$scratch/held" &
holder=$!
exec 7>"$scratch/hold"
ok "300 clients hang up in the middle of a request, and 300 stay there" await 60 grep -q held "$scratch/held"
is "$(status -H "X-API-Key: $key" "127.0.0.1:$port" GET /sandboxes)" 200 "a second client is answered beside a flood"
ok "no descriptor of those who hung up is left" await 30 sh -c "[ \$(ls /proc/$daemon/fd | wc -l) -lt 340 ]"
kill "$daemon"
{ wait "$daemon"; ended=$?; } 2>/dev/null
daemon=
exec 7>&-
{ wait "$holder"; } 2>/dev/null
is "$ended" 0 "the daemon ends when told to"
like "$(cat "$log")" "SIGTERM: [0-9]+ requests are open" "a daemon that ends says how many requests are open"
unlike "$(cat "$log")" "not answered in time" "a daemon that ends waits for no client in the middle of a request"
finish
