#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The daemon is killed in the midst of its work, and another takes over. SEEDS=100 is its large size (`make soak`).
. "$(dirname "$0")/lib.sh"
bake "$recipes/tiny.ini"
own_run
export PARBAKE="$parbake"
python3 "$top/tests/e2e/pool_chaos.py" "${SEEDS:-6}" "$scratch"
