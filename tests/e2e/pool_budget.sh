#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The memory budget: what waits goes before a sandbox is refused.
. "$(dirname "$0")/lib.sh"
bake "$recipes/tiny.ini"
sed 's/^name = tiny/name = other/' "$recipes/tiny.ini" >"$scratch/other.ini"
bake "$scratch/other.ini"
own_run
export PARBAKE="$parbake"
python3 "$top/tests/e2e/pool_budget.py" "$scratch"
