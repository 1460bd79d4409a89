#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A ready check that does not pass: what it says is shown while the bake waits, and one that never will ends the bake.
. "$(dirname "$0")/lib.sh"

# recipe NAME LINE…: a root as that of tiny, and what is started in it
recipe() {
	local name=$1
	shift
	printf '[template]\nname = %s\n[machine]\nmemory = 128M\ndisk = 256M\n[root]\nsource = debian\nsuite = bookworm\n[start]\n' "$name" \
		>"$scratch/$name.ini"
	printf '%s\n' "$@" >>"$scratch/$name.ini"
}
bake "$recipes/tiny.ini" # so that the root's source is there

recipe never 'ready = no-such-program --check'
not_ok "a check whose program is nowhere" timeout 280 "$parbake" bake "$scratch/never.ini"
like "$(cat "$scratch/err")" "\[start\] ready: it will not pass, however long one waits: .*no-such-program: (command )?not found" \
	"fails the bake long before it would give up, with what the shell said"
recipe broken 'command = exec sleep infinity' 'ready = if true; then echo x'
not_ok "a check that the shell cannot parse, beside a service" timeout 280 "$parbake" bake "$scratch/broken.ini"
like "$(cat "$scratch/err")" "\[start\] ready: it will not pass.*[Ss]yntax error" "too"

recipe later 'command = n=1; while [ $n -lt 9 ]; do sleep 0.5; echo "step $n of 8" >/run/step; n=$((n + 1)); done; touch /run/up; exec sleep infinity' \
	'ready = test -e /run/up || { cat /run/step; exit 1; }'
ok "a check that passes after a while" timeout 600 "$parbake" bake "$scratch/later.ini"
like "$(cat "$scratch/out" "$scratch/err")" "\[start\] ready: not yet: exit status 1: step [1-8] of 8" "says meanwhile how far it is"
"$parbake" rm later >/dev/null
finish
