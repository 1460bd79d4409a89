#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Using sandboxes over HTTP: output, input and files of any size, byte for byte and without memory; what ends a
# command ends its whole tree. MB=100 is how much goes through.
. "$(dirname "$0")/lib.sh"
bake "$recipes/tiny.ini"
export PARBAKE="$parbake"
python3 "$top/tests/e2e/envd.py" "${MB:-100}" "$scratch"
