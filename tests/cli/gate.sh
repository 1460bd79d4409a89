#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The gate on latencies, without machines: how often it is right.
. "$(dirname "$0")/../lib.sh"

# `make bench-gate` in a small size: false alarms, what is found, intervals
timeout 300 "$top/build/bench_gate" 60 >"$scratch/gate" 2>&1
is $? 0 "simulated, the gate is as right as it must be"
like "$(cat "$scratch/gate")" 'itself: called slower +0 of +60 ' "one build with itself is not called slower"
grep MISSED "$scratch/gate" | sed 's/^/# /'
finish
