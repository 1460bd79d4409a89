#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests and adds up their TAP: `run.sh [unit|fuzz|rules|cli|e2e|sdk|kvm|soak …]`; without words all but soak.
# The last line is "N passed, N failed, N skipped". A program that prints no plan, another number of
# results than its plan, or exits with a status but no failed test, counts as one failure. With
# PARBAKE_NO_SKIP=1 a skip is a failure. Each test has a time limit; its output lies in
# build/log/NAME.tap.
set -u
cd "$(dirname "$0")/.." || exit 1

# Debian's own programs (python3 with IPython among them), whatever else a developer has in front
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH
build=${BUILD:-build}
log=$build/log
mkdir -p "$log"
passed=0 failed=0 skipped=0

# add NAME STATUS: count the results in $log/NAME.tap
add() {
	local name=$1 status=$2 counts ok bad skip plan
	counts=$(awk '
		/^ok .*# SKIP/ { skip++; next }
		/^ok / { ok++ }
		/^not ok / { bad++ }
		/^1\.\.[0-9]+$/ { plan = substr($0, 4); has = 1 }
		END { print ok + 0, bad + 0, skip + 0, has ? plan : -1 }' "$log/$name.tap")
	read -r ok bad skip plan <<<"$counts"
	if [ "$plan" -ne $((ok + bad + skip)) ] || { [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; }; then
		bad=$((bad + 1))
		echo "not ok - $name: status $status, plan $plan, $ok ok, $skip skipped"
		tail -n 15 "$log/$name.tap" | sed 's/^/    /'
	fi
	if [ "${PARBAKE_NO_SKIP:-0}" = 1 ] && [ "$skip" -gt 0 ]; then
		echo "not ok - $name: $skip skipped where nothing may be"
		grep '^ok .*# SKIP' "$log/$name.tap" | sed 's/^/    /'
		bad=$((bad + skip)) skip=0
	fi
	printf '%-28s %5d passed %3d failed %3d skipped  %4d s\n' "$name" "$ok" "$bad" "$skip" \
		$((SECONDS - began))
	grep -A3 '^not ok' "$log/$name.tap" | head -n 40 | sed 's/^/    /'
	[ "$skip" -gt 0 ] && grep '^ok .*# SKIP' "$log/$name.tap" | head -n 5 | sed 's/^/    /'
	passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
}

# run LIMIT NAME COMMAND…
run() {
	local limit=$1 name=$2
	shift 2
	began=$SECONDS
	timeout -k 10 "$limit" "$@" >"$log/$name.tap" 2>"$log/$name.err" </dev/null
	local status=$?
	[ $status -eq 124 ] && echo "# $name: killed after $limit s" >>"$log/$name.tap"
	# a check by a function that is not there is no check
	if grep -E '^(tests/|/).*line [0-9]+: .*(command not found|syntax error)' "$log/$name.err" >"$log/$name.broken"; then
		sed 's/^/not ok - the test itself: /' "$log/$name.broken" >>"$log/$name.tap"
	fi
	rm -f "$log/$name.broken"
	[ $status -ne 0 ] && tail -n 15 "$log/$name.err" | sed 's/^/# /' >>"$log/$name.tap"
	add "$name" $status
}

tier_unit() {
	local t
	for t in "$build"/tests/test_*; do
		case $t in *.d) continue ;; esac
		run 300 "$(basename "$t")" "$t"
	done
}

tier_fuzz() { run 300 fuzz bash tests/fuzz/replay.sh "$build"; }
tier_rules() { run 300 rules bash tests/rules.sh; }

tier_scripts() { # LIMIT DIR
	local t
	for t in "tests/$2"/*.sh; do
		[ -e "$t" ] || continue
		case $t in */lib.sh) continue ;; esac
		run "$1" "$2-$(basename "$t" .sh)" bash "$t"
	done
}

tier_cli() { tier_scripts 600 cli; }
tier_e2e() { tier_scripts 1500 e2e; }
tier_kvm() { tier_scripts 2700 kvm; }
tier_sdk() {
	run 1200 sdk bash tests/sdk/run.sh
	run 1200 sdk-examples bash tests/sdk/examples.sh
}
tier_soak() { tier_scripts 7200 soak; }

[ $# -gt 0 ] || set -- rules unit fuzz cli e2e sdk kvm
for tier; do
	case $tier in
	unit) tier_unit ;;
	fuzz | rules | cli | e2e | sdk | kvm | soak) "tier_$tier" ;;
	*)
		echo "run.sh: there is no tier \"$tier\"" >&2
		exit 2
		;;
	esac
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
