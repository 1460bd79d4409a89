#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Cells of code in real sandboxes: what fails says so, what is odd survives, what is timed out stays so; and contexts
# that outlive a pause, a fork and the daemon.
. "$(dirname "$0")/lib.sh"
bake base
bake code-interpreter
own_run
export PARBAKE="$parbake"
python3 "$top/tests/e2e/cells.py" "$scratch"
