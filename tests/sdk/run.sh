#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The SDKs as they are published, pinned, against a pool: E2B's Python package, sync and async, and its JavaScript
# package, each in the oldest edition that is supported and in a new one; and E2B's own command. They are fetched as pip and npm are set up,
# once, into build/sdk.
. "$(dirname "$0")/lib.sh"

python_versions='2.45.1 2.63.0'
js_versions='2.45.0 2.51.0'

# python VERSION: a directory with that package
python() { venv "python-$1" "e2b==$1"; }
# js VERSION: the same
js() { modules "js-$1" "e2b@$1"; }

bake base

# documents about a template, read by the validators of those who define them
documents() { venv documents spdx-tools==0.8.5 'cyclonedx-python-lib[json-validation]==11.12.0'; }
ok "validators of bills of materials" documents
for format in spdx cyclonedx; do
	"$parbake" sbom base --format $format >"$scratch/$format.json"
done
ok "spdx-tools finds the SPDX document valid" "$cache/documents/bin/pyspdxtools" -i "$scratch/spdx.json"
ok "CycloneDX's own validator finds that one valid" "$cache/documents/bin/python" -c 'import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
wrong = JsonStrictValidator(SchemaVersion.V1_5).validate_str(open(sys.argv[1]).read())
sys.exit(repr(wrong) if wrong else 0)' "$scratch/cyclonedx.json"
sed -i 's/"CC0-1.0"/"none"/' "$scratch/spdx.json"
not_ok "a validator refuses a document that is none" "$cache/documents/bin/pyspdxtools" -i "$scratch/spdx.json"
serve base 2

# methods NAME COMMAND…: its results go to files of that name
methods() {
	local name=$1
	shift
	timeout 220 "$@" >"$scratch/$name.tap" 2>"$scratch/$name.err" </dev/null
	echo $? >"$scratch/$name.status"
}
# judge NAME: one check for all of its methods, with those that failed
judge() {
	local count status
	count=$(grep -c '^ok' "$scratch/$1.tap")
	status=$(cat "$scratch/$1.status")
	is "$([ "$count" -gt 40 ] && echo "$status")" 0 "$1: each of $count methods"
	grep -A8 '^not ok' "$scratch/$1.tap" | sed 's/^/# /'
	[ "$status" = 0 ] || tail -n 5 "$scratch/$1.err" | sed 's/^/# /'
}
names='' running=''
for version in $python_versions; do
	ok "e2b $version of Python's registry" python "$version"
	[ -e "$cache/python-$version/ready" ] || { sed 's/^/# /' "$scratch/fetch" && continue; }
	for kind in sync async; do
		methods "python-$version-$kind" "$cache/python-$version/bin/python" "$top/tests/sdk/methods.py" $kind &
		running="$running $!"
		names="$names python-$version-$kind"
	done
done
for version in $js_versions; do
	ok "e2b $version of JavaScript's registry" js "$version"
	[ -e "$cache/js-$version/ready" ] || { sed 's/^/# /' "$scratch/fetch" && continue; }
	cp "$top/tests/sdk/methods.mjs" "$cache/js-$version/"
	methods "js-$version" env PATH="$cache/js-$version/node_modules/.bin:$PATH" node "$cache/js-$version/methods.mjs" &
	running="$running $!"
	names="$names js-$version"
done
# shellcheck disable=SC2086 # a list of words
wait $running
for name in $names; do
	judge "$name"
done

# E2B's own command, against the same pool
cli_ready() { modules cli @e2b/cli@2.19.0; }
cli() { HOME=$scratch PATH=$cache/cli/node_modules/.bin:$PATH timeout 60 e2b "$@" </dev/null 2>"$scratch/cli.err"; }
ok "E2B's command of JavaScript's registry" cli_ready
id=$(curl -sf -H "X-API-Key: $key" -H 'Content-Type: application/json' -d '{"templateID": "base", "timeout": 300}' \
	"$E2B_API_URL/sandboxes" | grep -o '"sandboxID": *"[^"]*"' | cut -d'"' -f4)
like "$(cli sandbox list)" "$id .*base" "e2b sandbox list"
like "$(cli sandbox list --format json)" "\"$id\"" "… as JSON"
like "$(cli sandbox info "$id")" "State: running" "e2b sandbox info"
is "$(cli sandbox exec "$id" -- echo hi)" hi "e2b sandbox exec"
like "$(cli sandbox logs "$id")" "Logs for sandbox $id" "e2b sandbox logs"
like "$(cli sandbox metrics "$id")" "/ 256" "e2b sandbox metrics"
like "$(cli template list)" "base" "e2b template list"
named=cli-$$-$RANDOM
snapshot=$(cli sandbox snapshot create "$id" | grep -oE 'snapshot [a-z0-9]{20}' | cut -d' ' -f2)
like "$snapshot" "^[a-z0-9]{20}$" "e2b sandbox snapshot create"
like "$(cli sandbox snapshot list)" "$snapshot" "e2b sandbox snapshot list"
ok "e2b sandbox snapshot delete" cli sandbox snapshot delete "$snapshot"
unlike "$(cli sandbox snapshot list)" "$snapshot" "then it is not there"
ok "a snapshot with a name" cli sandbox snapshot create "$id" --name $named
ok "a second snapshot takes a name over" cli sandbox snapshot create "$id" --name $named
like "$(cli template list)" "$named" "which is a template's"
ok "that is deleted as a snapshot" cli sandbox snapshot delete $named
unlike "$(cli template list)" "$named" "and is not there"
ok "e2b sandbox pause" cli sandbox pause "$id"
like "$(cli sandbox list --state paused)" "$id" "it is paused"
ok "e2b sandbox resume" cli sandbox resume "$id"
ok "e2b sandbox kill" cli sandbox kill "$id"
unlike "$(cli sandbox list)" "$id" "then it is not there"
finish
