#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The gate on latencies, without machines: how often it is right, and `bench ab` of programs whose creates are numbers.
. "$(dirname "$0")/../lib.sh"

# `make bench-gate` in a small size: false alarms, what is found, intervals
timeout 300 "$top/build/bench_gate" 60 >"$scratch/gate" 2>&1
is $? 0 "simulated, the gate is as right as it must be"
like "$(cat "$scratch/gate")" 'itself: called slower +0 of +60 ' "one build with itself is not called slower"
grep MISSED "$scratch/gate" | sed 's/^/# /'

export PARBAKE_HOME=$scratch/home FAKE_SEED=$scratch/seed TMPDIR=$scratch
mkdir -p -m 700 "$PARBAKE_HOME/store"
fake=$top/tests/cli/fake_bench.py
# ab STATUS NAME WORDS…: its exit status; what it said is in $scratch/out
ab() {
	local want=$1 name=$2
	shift 2
	timeout 300 "$parbake" bench ab --any-load --template quick --rounds 14 "$@" >"$scratch/out" 2>"$scratch/err"
	is $? "$want" "$name"
}
json() { python3 -c "import json,sys; d=json.load(open(sys.argv[1])); print($1)" "$2"; }

timeout 300 "$parbake" bench ab --any-load --template quick --save "$scratch/ab.json" "$fake" "$fake" >"$scratch/out" 2>"$scratch/err"
is $? 0 "a build and itself are the same"
like "$(cat "$scratch/out")" '^verdict: same' "one build with itself is called the same"
like "$(cat "$scratch/out")" 'rounds of 25 creates .* which is enough' "it ends when the rounds show what is asked for"
is "$(json '[len(d["runs"]) == 2 * d["ab"]["rounds"], sorted({r["side"] for r in d["runs"]}), d["ab"]["ended"], d["ab"]["verdict"]]' "$scratch/ab.json")" \
	"[True, ['new', 'old'], 'enough', 'same']" "ab's document has each run with side and round"
is "$(json 'all(sum(r["round"] == i for r in d["runs"]) == 2 for i in range(d["ab"]["rounds"]))' "$scratch/ab.json")" True \
	"two of each round"
timeout 60 "$parbake" bench compare --any-load "$scratch/ab.json" >"$scratch/again"
is "$? $(tail -n 1 "$scratch/again")" "0 verdict: same" "the document alone gives the verdict again"
ab 1 "10 % slower is slower" "$fake" "$fake FAKE_SLOWER=0.1"
like "$(cat "$scratch/out")" '^because: create quick cold: p50 is \+(8|9|1[0-4])\.' "by that much"
ab 0 "10 % faster is fine" "$fake FAKE_SLOWER=0.1" "$fake"
like "$(cat "$scratch/out")" '^verdict: faster' "a build that is faster is called so"
ab 1 "a template against another" "$fake" "$fake slow"
ab 1 "an option against none" "$fake" "$fake --own-pager"
ab 1 "one that fails more often" "$fake" "$fake FAKE_FAILS=0.2"
like "$(cat "$scratch/out")" 'failed, 0 of [0-9]+ before' "with how many"
ab 1 "one that costs more and takes no longer" "$fake" "$fake FAKE_COST=0.1"
like "$(cat "$scratch/out")" '^because: create quick cold: cpu is \+(9|1[01])\.' "by how much processor time"
like "$(cat "$scratch/out")" '^  cold +calls .* slower' "and system calls"
ab 1 "a count alone" "$fake" "$fake FAKE_CALLS=0.1"
ab 0 "costs that are accepted" --max-cost 20% "$fake" "$fake FAKE_COST=0.1"
ab 0 "times alone" --judge time "$fake" "$fake FAKE_COST=0.1"
ab 0 "costs alone" --judge costs "$fake" "$fake FAKE_SLOWER=0.5"
ab 1 "costs alone, more of them" --judge costs "$fake FAKE_SLOWER=0.5" "$fake FAKE_CALLS=0.1"
ab 2 "what is judged has a name" --judge luck "$fake" "$fake"
ab 1 "one of several modes that is slower" --mode cold --mode spare "$fake" "$fake FAKE_SLOWER=0.3"
like "$(cat "$scratch/out")" '^  spare +p50' "each has its rows"
ab 3 "three rounds decide nothing" --rounds 3 "$fake" "$fake FAKE_SLOWER=1"
like "$(cat "$scratch/out")" 'nothing is known of how runs differ with fewer than 4' "and why"
ab 3 "nor do six, of 5 %" --rounds 6 "$fake" "$fake"
like "$(cat "$scratch/out")" 'p50 .* runs' "with how many would"
ab 1 "with --strict that is a failure" --strict --rounds 3 "$fake" "$fake"
ab 2 "an old build that makes nothing cannot be compared" "$fake FAKE_BROKEN=1" "$fake"
like "$(cat "$scratch/err")" 'the old build: .*it is broken' "what it said is told"
ab 1 "a new build that makes nothing is slower" "$fake" "$fake FAKE_BROKEN=1"
like "$(cat "$scratch/err")" 'the new build: .*it is broken' "what it said is told"
ab 2 "a program that is not there" "$fake" ./no/such/program
ab 2 "two programs on one side" "$fake $fake" "$fake"
ab 2 "an option that there is not" --detekt 5% "$fake" "$fake"
like "$(cat "$scratch/err")" 'did you mean --detect' "gets the nearest name"
ab 2 "a limit that is none" --max-regress p50=often "$fake" "$fake"
ab 3 "time that is up ends it" --time-limit 2s --rounds 1000 "$fake FAKE_SLEEP=0.3" "$fake FAKE_SLEEP=0.3"
like "$(cat "$scratch/out")" 'until time was up' "and is told"

# stopped in the middle: what there is is kept
timeout 300 "$parbake" bench ab --any-load --template quick --save "$scratch/cut.json" "$fake FAKE_SLEEP=0.2" "$fake" \
	>"$scratch/out" 2>"$scratch/err" &
pid=$!
begun=$(wc -c <"$scratch/seed")
ok "runs are made" await 60 eval '[ "$(wc -c <"$scratch/seed")" -gt $((begun + 8)) ]'
child=$(pgrep -P $pid)
kill -TERM "$child"
wait $pid
is $? 3 "SIGTERM: what was measured is judged"
is "$(json '[d["ab"]["ended"], d["ab"]["rounds"] > 0, len(d["runs"]) == 2 * d["ab"]["rounds"]]' "$scratch/cut.json")" "['signal', True, True]" \
	"and kept"
is "$(ls -d "$scratch"/parbake-run.* 2>/dev/null)" "" "no run's directory is left"
finish
