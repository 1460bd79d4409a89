#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The ports of sandboxes from outside: HTTP in all its shapes, events, an upgrade, and servers and clients that mean harm.
. "$(dirname "$0")/lib.sh"
bake "$recipes/tiny.ini"
own_run
export PARBAKE="$parbake"
python3 "$top/tests/e2e/pool_ports.py" "$scratch"
