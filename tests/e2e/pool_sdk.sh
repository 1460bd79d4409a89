#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What SDKs rely on of the control plane: states as they recognise them, sandboxes that sleep and are woken, other
# names of templates.
. "$(dirname "$0")/lib.sh"
cp -r "$recipes/." "$scratch/r"
sed -i 's/^name = tiny/name = tiny\naliases = small-v1 small/' "$scratch/r/tiny.ini"
bake "$scratch/r/tiny.ini"
own_run
export PARBAKE="$parbake"
python3 "$top/tests/e2e/pool_sdk.py" "$scratch"
