#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The agents in examples/, against a pool and a model that is a script: each is asked to run code, and what it prints can
# only come from a sandbox; code that fails and code that never ends come back as text; and no sandbox is left.
. "$(dirname "$0")/lib.sh"

bake code-interpreter
like "$("$parbake" run code-interpreter --code '!pip install numpy pillow')" "already satisfied: pillow" \
	"what smolagents installs into each sandbox is there"
release=$("$parbake" run code-interpreter -- uname -r)
serve code-interpreter 1

# own_venv REQUIREMENTS: a Python with what this file of examples/ lists; another one when the file changes
own_venv() { venv "examples-$(cksum <"$top/examples/$1" | cut -d' ' -f1)" -r "$top/examples/$1"; }
own_python() { echo "$cache/examples-$(cksum <"$top/examples/$1" | cut -d' ' -f1)/bin/python"; }

model() {
	python3 "$top/examples/scripted_model.py" 0 >"$scratch/model" 2>"$scratch/model.err" &
	others="$others $!"
	await 20 grep -q OPENAI "$scratch/model"
}
ok "a scripted model listens" model
# shellcheck source=/dev/null
. "$scratch/model"

sandboxes() { curl -sf -H "X-API-Key: $key" "$E2B_API_URL/v2/sandboxes?state=running,paused" || echo "no list"; }

# question CODE: what an example is asked
question() { printf 'Run this and say what comes of it:\n```python\n%s\n```' "$1"; }

# ask EXAMPLE CODE: what it answers
ask() { timeout 120 "$(own_python "${needs[$1]}")" "$top/examples/$1.py" "$(question "$2")" 2>"$scratch/$1.err" </dev/null; }

declare -A needs=([tool_loop]=requirements.txt [agno_agent]=requirements.txt [autogen_executor]=requirements.txt
	[smolagents_agent]=requirements.txt [openai_agents]=requirements-openai-agents.txt)
for file in $(printf '%s\n' "${needs[@]}" | sort -u); do
	ok "what examples/$file lists is fetched" own_venv "$file"
	[ -s "$scratch/fetch" ] && sed 's/^/# /' "$scratch/fetch"
done
is "$(timeout 60 "$(own_python requirements.txt)" "$top/examples/run_code.py" 2>&1)" 42 "a cell of code, from Python"
js=$cache/code-interpreter-js-2.8.0
ok "the code interpreter of JavaScript's registry" modules "${js##*/}" @e2b/code-interpreter@2.8.0
cp "$top/examples/run_code.mjs" "$js/"
is "$(PATH=$js/node_modules/.bin:$PATH timeout 60 node "$js/run_code.mjs" 2>&1)" 42 "a cell of code, from JavaScript"

for name in "${!needs[@]}"; do
	nonce=$RANDOM$RANDOM
	value="$(printf %s "$nonce" | sha256sum | cut -c1-16) $release"
	said=$(ask "$name" "import hashlib, platform
print(hashlib.sha256(b'$nonce').hexdigest()[:16], platform.release())")
	like "$said" "$value" "$name tells what code printed in a sandbox"
	[ -n "$said" ] || tail -n 20 "$scratch/$name.err" | sed 's/^/# /'
	said=$(ask "$name" 'print(1 / (len("ab") - 2))')
	like "$said" "^The sandbox says:(.|$)" "$name answers about code that fails"
	like "$said" "ZeroDivisionError" "$name tells the error of code that fails"
done
# the Agents SDK makes an empty sandbox where it cannot come back to its own, and says nothing
for way in paused closed tar snapshot; do
	ok "the Agents SDK comes back to its files: $way" timeout 60 "$(own_python requirements-openai-agents.txt)" \
		"$top/tests/sdk/agents_session.py" $way
done
is "$(sandboxes)" "[]" "and no sandbox is left by any of them"

# all at once with code that never ends: the limit of a run ends it, the sandboxes have a lease meanwhile
running=''
for name in "${!needs[@]}"; do
	ask "$name" 'import time; time.sleep(100000)' >"$scratch/$name.late" &
	running="$running $!"
done
# shellcheck disable=SC2086 # a list of words
some_run() { kill -0 $running; } 2>/dev/null
# until the last has ended, what the pool lists is written down
while some_run; do
	sandboxes
	echo
	sleep 0.1
done >"$scratch/seen"
is "$(python3 -c 'import datetime, json, sys
leases = {}
for line in sys.stdin:
	for s in json.loads(line):
		begin, end = (datetime.datetime.fromisoformat(s[at]) for at in ("startedAt", "endAt"))
		leases[s["sandboxID"]] = round((end - begin).total_seconds())
print(*sorted(leases.values()))' <"$scratch/seen")" "300 300 300 300 300" "each has a sandbox, with a lease of 300 s"
for name in "${!needs[@]}"; do
	like "$(cat "$scratch/$name.late")" "[Tt]imed out|[Tt]imeout|Process running with session ID" "$name tells that code takes too long"
done
is "$(sandboxes)" "[]" "and no sandbox is left by those either"
finish
