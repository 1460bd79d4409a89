#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The memory budget: what waits goes before a sandbox is refused.
. "$(dirname "$0")/lib.sh"
bake "$recipes/tiny.ini"
cp -r "$recipes" "$scratch/recipes"
sed -i 's/^name = tiny/name = other/' "$scratch/recipes/tiny.ini"
bake "$scratch/recipes/tiny.ini"
own_run
export PARBAKE="$parbake"
python3 "$top/tests/e2e/pool_budget.py" "$scratch"
