#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Create and kill, again and again: descriptors, threads, processes, files, memory end where they began. N=1000 is its large size (`make soak`).
. "$(dirname "$0")/lib.sh"
bake "$recipes/tiny.ini"
own_run
export PARBAKE="$parbake"
python3 "$top/tests/e2e/pool_cycles.py" "${N:-60}" "$scratch"
