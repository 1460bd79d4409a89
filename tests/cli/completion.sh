#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every command's help page and the words that shells complete: both come from the commands' tables.
. "$(dirname "$0")/../lib.sh"
unset PARBAKE_API PARBAKE_API_KEY
export PARBAKE_HOME=$scratch/home PATH=$(dirname "$parbake"):$PATH
mkdir -m 700 "$PARBAKE_HOME"
unpack_golden "$top/tests/golden/store-1.txt" "$PARBAKE_HOME/store"

# words WORD…: what the last of them could become, without what that is for
words() { "$parbake" completion words -- "$@" | cut -f1; }

# pages [WORD…]: the names of all commands below these words that have a page of options
pages() {
	local word
	words "$@" '' | while read -r word; do
		if [ "$(words "$@" "$word" '' | head -n 1)" ] && "$parbake" help "$@" "$word" | grep -q '^commands:$'; then
			pages "$@" "$word"
		else
			echo "$@" "$word"
		fi
	done
}
pages=$(pages | grep -vxE 'help|version')
like "$(echo "$pages" | tr '\n' ' ')" "bake fetch run .*pool serve .*doctor" "commands and subcommands are found"
wide= lacking= silent=
while read -r name; do
	# shellcheck disable=SC2086 # words
	page=$("$parbake" $name --help) || silent+=" $name"
	[ "$page" = "$("$parbake" help $name)" ] || silent+=" $name"
	wide+=$(python3 -c 'import sys; print("".join(l for l in sys.argv[2].splitlines(True) if len(l.rstrip("\n")) > 80))' \
		"$name" "$page")
	for option in $(words $name -); do
		grep -qE -- "^ .*(^|[ ,])$option( |\$)" <<<"$page" || lacking+=" $name:$option"
	done
done < <(echo "$pages")
is "$silent" "" "each command answers --help and help alike"
is "$wide" "" "no line of a help page is wider than 80 columns where there is no terminal"
is "$lacking" "" "each option is in its command's help page"

# the words themselves
is "$(words sbom --format '')" "$(printf 'spdx\ncyclonedx\nprovenance')" "an option's choices are offered"
is "$(words bake --accel=k)" "--accel=kvm" "also behind ="
is "$(words inspect '')" "golden:v1" "templates are offered where a template goes"
is "$(words inspect --store "$scratch/none" '')" "" "of the store that the line names"
is "$(words run -e A=1 golden:v1 '')" "" "one template is enough"
is "$(words bake code-i)" "$(printf 'code-interpreter\n:files')" "recipes are, and files"
is "$(words exec x -- --)" "" "what is behind -- is another command's"
is "$(words nonsense '')$(words pool nonsense '')" "" "a command that is not there has no words"
is "$(words ps --a)" "--all" "options are offered"
is "$(words kill '')" "" "sandboxes are none where there is no pool"
python3 "$top/tests/cli/fake_pool.py" "$scratch/pool.sock" &
pool=$!
for _ in $(seq 600); do
	[ -S "$scratch/pool.sock" ] && break
	sleep 0.1
done
export PARBAKE_API=unix:$scratch/pool.sock
id=$("$parbake" create base)
is "$(words kill "${id:0:2}")" "$id" "sandboxes of a pool are offered by their ids"
kill "$pool"

# a shell
"$parbake" completion bash >"$scratch/script"
ok "bash completes commands, options, choices, templates, file names" python3 "$top/tests/cli/complete.py" "$scratch/script" \
	$'parbake doct\t' 'parbake doctor ' \
	$'parbake gc --keep-v\t' 'parbake gc --keep-versions ' \
	$'parbake pool sta\t' 'parbake pool status ' \
	$'parbake sbom --format cyc\t' 'parbake sbom --format cyclonedx ' \
	$'parbake bake --accel=k\t' 'parbake bake --accel=kvm ' \
	$'parbake inspect gold\t' 'parbake inspect golden:v1 ' \
	$'parbake inspect golden:\t' 'parbake inspect golden:v1 ' \
	$'parbake pool check '"$scratch"$'/scr\t' "parbake pool check $scratch/script " \
	$'parbake p\t' 'pause'
finish
