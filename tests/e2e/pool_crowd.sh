#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Many creates at once, while one machine is stopped. N=50 is its large size (`make soak`).
. "$(dirname "$0")/lib.sh"
bake "$recipes/tiny.ini"
own_run
export PARBAKE="$parbake"
python3 "$top/tests/e2e/pool_crowd.py" "${N:-16}" "$scratch"
