#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `make bench`: everything that it takes one host to measure, into bench.json and bench.html.
#
#   benches/run.sh [OUT_DIR]     N=100 samples a series; AGAINST="a.json b.json" earlier documents to compare with;
#                                BEFORE=path/to/parbake: an earlier build, measured beside this one in the last table
#
# Needs the templates base and code-interpreter, which it bakes where they are not there (that takes longer).
set -eu
cd "$(dirname "$0")/.."
out=${1:-.}
n=${N:-100}
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT
began=$SECONDS
number=10

# measure WORDS…: one measurement; its table is shown, its document kept
measure() {
	printf '\n== %s (%d s)\n' "$*" $((SECONDS - began))
	number=$((number + 1))
	./parbake bench "$@" --save "$parts/$number.json"
}

for template in base code-interpreter; do
	./parbake inspect $template >/dev/null 2>&1 || ./parbake bake $template
done
began=$SECONDS

measure create base -n "$n" --boots 5 --firsts 5 --trace
measure create base -n $((n / 2)) --mode cold --boots 0 --result exec
measure create code-interpreter -n $((n / 2)) --boots 0 --result python --trace
measure create base -n 20 --mode cold --boots 0 --no-premap --trace
measure create base -n 20 --mode cold --boots 0 --no-uffd
measure create base -n 20 --mode cold --boots 0 --own-pager
measure create base -n 20 --mode cold --boots 0 --cold-cache
measure create base -n "$n" --mode cold --boots 0 --concurrency 10
measure create base -n "$n" --mode cold --boots 0 --concurrency 50
measure create base -n $((n / 2)) --mode cold --boots 0 --rate 4
measure create base -n $((n / 2)) --mode spare --boots 0 --rate 4
measure exec code-interpreter -n "$n"
measure density code-interpreter
measure fault -n 3
measure image base --frame 16,64,256 --level 1,3,6 -n 1000

printf '\n== peers (%d s)\n' $((SECONDS - began))
build/bench_peers -n 20 --save "$parts/90.json" base

against=()
for old in ${AGAINST:-}; do
	against+=(--against "$old")
done
./parbake bench report --save "$out/bench.json" --report "$out/bench.html" "${against[@]}" "$parts"/*.json
printf '\n%s and %s, after %d s\n' "$out/bench.json" "$out/bench.html" $((SECONDS - began))

printf '\n== starts and programs (%d s)\n' $((SECONDS - began))
python3 benches/programs.py $((n / 2)) ${BEFORE:+"$BEFORE"}
