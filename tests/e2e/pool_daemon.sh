#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The daemon with machines: who sees which sandbox, how one is addressed, metrics, a drain with an open request, a
# restart and a kill -9 that sandboxes live through. Without machines: tests/cli/daemon.sh.
. "$(dirname "$0")/lib.sh"

unset PARBAKE_API_KEY PARBAKE_API
bake "$recipes/tiny.ini"
export PARBAKE_API=unix:$scratch/run/sock
socket=$scratch/run/sock conf=$scratch/pool.conf
pids=() daemon=
end() {
	[ -z "$daemon" ] || "$parbake" kill --all
	kill -9 "${pids[@]}"
	wait
	rm -rf "$scratch"
} >/dev/null 2>&1
trap end EXIT

serve() { # NAME: start a daemon, wait until it answers
	: >"$scratch/$1"
	"$parbake" pool serve --config "$conf" 2>"$scratch/$1" &
	daemon=$!
	pids+=("$daemon")
	await 60 grep -q "the pool answers" "$scratch/$1"
}
ask() { timeout 60 python3 "$top/tests/cli/ask.py" "$@"; }
status() { # of an answer; its body in $scratch/body
	ask "$@" >"$scratch/answer" 2>"$scratch/err" || { cat "$scratch/err"; return; }
	sed 1d "$scratch/answer" >"$scratch/body"
	head -n 1 "$scratch/answer"
}
field() { python3 -c "import json,sys; d=json.load(open(sys.argv[1])); print($1)" "$scratch/body"; }
ready() { [ "$(status "$socket" GET /readyz)" = 200 ]; }

for who in one two three; do
	"$parbake" pool key "$who" >"$scratch/key"
	eval "$who=\$(grep -o 'e2b_[0-9a-f]*' \"\$scratch/key\")"
	grep -v '^#' "$scratch/key" >>"$scratch/keys"
done
port=$(python3 -c 'import socket; s=socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
printf '[pool]\nlisten = 127.0.0.1:%s\nsocket = %s\nstate = %s\ndomain = sb.example.org\n[template tiny]\nstandbys = 1\nspares = 1\n' \
	"$port" "$socket" "$scratch/state" >"$conf"
printf '[template later:v1]\n' >>"$conf"
cat "$scratch/keys" >>"$conf"
echo 'max_sandboxes = 3' >>"$conf"

serve first
ok "standbys and spares are made" await 120 ready
# shellcheck disable=SC2154 # by the eval above
is "$(status -H "X-API-Key: $one" "$socket" POST /sandboxes '{"templateID": "tiny"}')" 201 "a sandbox of the first key"
id=$(field 'd["sandboxID"]') token=$(field 'd["envdAccessToken"]')
is "$(status -H "X-API-Key: $one" "$socket" GET "/sandboxes/$id")" 200 "a sandbox's key sees it"
# shellcheck disable=SC2154
is "$(status -H "X-API-Key: $two" "$socket" GET "/sandboxes/$id")" 404 "another key does not see the sandbox"
is "$(status -H "X-API-Key: $two" "$socket" DELETE "/sandboxes/$id")" 404 "another key may not end the sandbox"
is "$(status -H "X-API-Key: $two" -H "E2b-Sandbox-Id: $id" "$socket" GET /health)" 502 "another key may not use the sandbox"
is "$(status "$socket" GET "/sandboxes/$id")" 200 "this user sees all"

# how it is addressed
key=(-H "X-API-Key: $one")
is "$(status "${key[@]}" -H "Host: 49983-$id.sb.example.org" "$socket" GET /health)" 204 "by its host name"
is "$(status "${key[@]}" -H "Host: 49999-$id.SB.example.org:3000" "$socket" GET /health)" 204 "a host name with a port behind it leads to the sandbox"
is "$(status "${key[@]}" -H "Host: 8080-$id.sb.example.org" "$socket" GET /)" 502 "a port of the guest's own is not reached"
is "$(status "${key[@]}" -H "E2b-Sandbox-Id: $id" "$socket" GET /health)" 204 "by a header"
is "$(status "${key[@]}" -H "X-Sandbox-Id: $id" "$socket" GET /health)" 204 "by another"
is "$(status "${key[@]}" "$socket" GET "/sandboxes/$id/health")" 204 "by its path"
is "$(status "${key[@]}" -H "E2b-Sandbox-Id: $id" "$socket" GET /no/such)" 404 "what is not there"
is "$(status "${key[@]}" -H "Host: 49983-$id.other.example.org" "$socket" GET "/sandboxes/$id")" 200 \
	"another domain is none of ours"


# by TCP: its token opens its inside, and nothing else
tcp=127.0.0.1:$port
is "$(status -H "E2b-Sandbox-Id: $id" "$tcp" GET /health)" 401 "over TCP nothing goes without a key"
is "$(status -H "X-Access-Token: $token" -H "E2b-Sandbox-Id: $id" "$tcp" GET /health)" 204 "the sandbox's token opens the sandbox"
is "$(status -H "X-Access-Token: ${token%?}x" -H "E2b-Sandbox-Id: $id" "$tcp" GET /health)" 401 "not another"
is "$(status -H "X-Access-Token: $token" -H "E2b-Sandbox-Id: none" "$tcp" GET /health)" 401 "a token opens no other sandbox"
is "$(status -H "X-Access-Token: $token" "$tcp" GET "/sandboxes/$id")" 401 "a token does not open the control plane"

# metrics
is "$(status "$socket" GET /metrics)" 200 "GET /metrics is answered"
cp "$scratch/body" "$scratch/metrics"
like "$(cat "$scratch/metrics")" '^parbake_create_seconds_count\{template="tiny",mode="spare"\} 1$' "a create from a spare is counted in the metrics"
like "$(cat "$scratch/metrics")" '^parbake_create_part_seconds_count\{template="tiny",mode="spare",part="resumed"\} 1$' "the parts of a create are counted"
like "$(cat "$scratch/metrics")" '^parbake_pool_found_total\{template="tiny",tag="latest",found="spare"\} 1$' "the metrics say that the create found a spare"
like "$(cat "$scratch/metrics")" '^parbake_sandboxes\{state="running"\} 1$' "the metrics count the running sandbox"
like "$(cat "$scratch/metrics")" '^parbake_memory_bytes\{template="tiny",kind="guest_private"\} [1-9]' "the metrics have the memory of the guests"
like "$(cat "$scratch/metrics")" '^parbake_monitor_faults\{template="tiny"\} [1-9]' "the metrics have the page faults of the monitors"
is "$(grep -c '^parbake_template_\(standbys\|shells\){template="tiny",tag="latest"} 1$' "$scratch/metrics")" 2 \
	"standbys are counted by their name and by its earlier one"
is "$(status "$socket" GET /v1/pool)" 200 "GET /v1/pool is answered"
is "$(field '[(t["name"], t["sandboxes"], t["hits_spare"]) for t in d["templates"] if t["name"] == "tiny"]')" \
	"[('tiny', 1, 1)]" "GET /v1/pool tells of the template, its sandbox and the spare that was found"
is "$(field 'all(t[a] == t[b] for a, b in (("standbys", "shells"), ("want_standbys", "want_shells"), ("hits_standby", "hits_shell")) for t in d["templates"])')" \
	True "standbys are told by their names and by their earlier ones"

is "$(status "$socket" GET /readyz; field 'd["status"] + ": " + d["why"]')" \
	"$(printf '200\ndegraded: template later:v1: it is not in the store')" "one that is configured is not there"

# templates are everybody's
templates() { status "$socket" GET /templates; field '[(t["templateID"], t["buildID"]) for t in d]'; }
had=$(templates)
is "$(status -H "X-API-Key: $one" "$socket" POST "/sandboxes/$id/snapshots" '{"name": "tiny"}')" 409 "a key replaces no template"
is "$(status -H "X-API-Key: $one" "$socket" POST "/sandboxes/$id/snapshots" '{"name": "later:v1"}')" 409 \
	"nor one that is configured and not baked yet"
is "$(templates)" "$had" "nothing was published by a request that failed"
like "$had" "'tiny'" "which had that one"

# forks count from when they are asked for
three=(-H "X-API-Key: $three") # shellcheck disable=SC2128 # by the eval above
is "$(status "${three[@]}" "$socket" POST /sandboxes '{"templateID": "tiny"}')" 201 "a key that may have three"
of=$(field 'd["sandboxID"]') asked=()
ask "${three[@]}" "$socket" POST "/sandboxes/$of/fork" '{"count": 2}' >"$scratch/forks" 2>&1 &
asked+=($!)
for i in 1 2 3 4; do
	ask "${three[@]}" "$socket" POST /sandboxes '{"templateID": "tiny"}' >"$scratch/create.$i" 2>&1 &
	asked+=($!)
done
wait "${asked[@]}"
is "$(status "${three[@]}" "$socket" GET /sandboxes; field 'len(d)')" "$(printf '200\n3')" "a key has its three sandboxes, whoever was first"
for each in $(field '" ".join(b["sandboxID"] for b in d)'); do
	is "$(status "${three[@]}" "$socket" DELETE "/sandboxes/$each")" 204 "a sandbox of the key with three is ended"
done

# a file of the host's that is missing is no sandbox that is missing: its client would give it up
is "$(status "${three[@]}" "$socket" POST /sandboxes '{"templateID": "tiny"}')" 201 "a sandbox that is to be paused is created"
rests=$(field 'd["sandboxID"]')
is "$(status "${three[@]}" "$socket" POST "/sandboxes/$rests/pause")" 204 "the sandbox is paused"
capture=$(echo "$scratch/state/captures/$rests"-*)
mv "$capture" "$scratch/away"
is "$(status "${three[@]}" "$socket" POST "/sandboxes/$rests/resume" '{}')" 500 "a resume without its files is the host's fault, not 404"
is "$(status "${three[@]}" "$socket" POST "/sandboxes/$rests/fork" '{"count": 1}')" 500 "a fork without the sandbox's files is the host's fault, not 404"
is "$(status "${three[@]}" "$socket" POST "/sandboxes/$rests/snapshots" '{}')" 500 "a snapshot without the sandbox's files is the host's fault, not 404"
is "$(status "${three[@]}" "$socket" GET "/sandboxes/$rests"; field 'd["state"]')" "$(printf '200\npaused')" "a sandbox whose resume failed is still there"
mv "$scratch/away" "$capture"
is "$(status "${three[@]}" "$socket" POST "/sandboxes/$rests/resume" '{}')" 201 "a sandbox is resumed when its files are there again"
is "$(status "${three[@]}" "$socket" DELETE "/sandboxes/$rests")" 204 "the resumed sandbox is ended"

# a drain: what runs in an open request is answered, what would begin is not
"$parbake" exec "$id" --shell 'echo began; cat /tmp/go 2>/dev/null; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo ended' \
	>"$scratch/exec" 2>"$scratch/exec.err" &
exec=$!
ok "a command runs" await 20 grep -q began "$scratch/exec"
"$parbake" exec "$id" --shell 'echo armed; sleep 2; touch /tmp/go' >"$scratch/armed" 2>&1 &
pids+=($!)
ok "a second command runs" await 20 grep -q armed "$scratch/armed"
kill -TERM "$daemon"
ok "told to end, it refuses others" await 10 sh -c "! '$parbake' pool status"
wait "$exec"
is "$? $(tr '\n' ' ' <"$scratch/exec")" "0 began ended " "the command is answered to its end"
wait "$daemon"
is "$?" 0 "a daemon that was told to end ends"
serve second
is "$("$parbake" ps --quiet)" "$id" "the next one has the sandbox"
is "$("$parbake" exec "$id" -- cat /proc/sys/kernel/ostype)" Linux "which works"
kill -9 "$daemon"
wait "$daemon" 2>/dev/null
serve third
is "$("$parbake" exec "$id" --shell 'test -e /tmp/go && echo same')" same "a sandbox goes on after a kill -9 of the daemon"
is "$(status -H "X-API-Key: $two" "$socket" GET "/sandboxes/$id")" 404 "an adopted sandbox is still its key's"
ok "an adopted sandbox is ended" "$parbake" kill "$id"
is "$("$parbake" ps --quiet)" "" "no sandbox is left after the last was ended"
kill -TERM "$daemon"
wait "$daemon"
is "$?" 0 "the last daemon ends"
daemon=
finish
