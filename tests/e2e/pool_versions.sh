#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A daemon of one version after a daemon of another: it adopts what it can read, leaves alone what it cannot, says so by
# version, and loses nothing.
. "$(dirname "$0")/lib.sh"
bake "$recipes/tiny.ini"
own_run
export PARBAKE="$parbake" NEXT="$top/build/next/parbake"
python3 "$top/tests/e2e/pool_versions.py" "$scratch"
