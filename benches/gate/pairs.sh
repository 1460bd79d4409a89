#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The gate on real creates: one build with itself, and with one that takes 1 ms longer, time after time.
#
#   benches/gate/pairs.sh [PAIRS] [WORDS…]    10 pairs of each; WORDS are further options of `bench ab`
#
# OLD and SLOWER are sides as `bench ab` takes them: two builds of two commits, say. TEMPLATE: base.
set -u
cd "$(dirname "$0")/../.." || exit 2
pairs=${1:-10}
shift $(($# > 0))
old=${OLD:-}
slower=${SLOWER:-PARBAKE_FAULT=restore.create.begin=1ms}

# count NAME OLD NEW WORDS…: how often it is called what
count() {
	local name=$1 old=$2 new=$3 status
	local -a seen=(0 0 0 0)
	shift 3
	for ((i = 0; i < pairs; i++)); do
		./parbake bench ab --template "${TEMPLATE:-base}" "$@" -- "$old" "$new" >"$said" 2>&1
		status=$?
		[ $status -le 3 ] || { cat "$said"; exit 2; }
		seen[status]=$((seen[status] + 1))
		grep -E '^ +[0-9a-z]+ +p50|rounds of' "$said" | sed 's/^/    /'
	done
	printf '%-34s of %d: slower %d, same or faster %d, undecided %d, not compared %d\n' "$name" "$pairs" \
		"${seen[1]}" "${seen[0]}" "${seen[3]}" "${seen[2]}"
	called=${seen[1]}
}

said=$(mktemp)
trap 'rm -f "$said"' EXIT
count "one build with itself" "$old" "$old" "$@"
false_alarms=$called
count "one that takes 1 ms longer" "$old" "$slower" "$@"
[ "$false_alarms" = 0 ] && [ "$called" = "$pairs" ]
