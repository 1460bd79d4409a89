#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/e2e/pool_chaos.sh, large.
SEEDS=${SEEDS:-100} exec bash "$(dirname "$0")/../e2e/pool_chaos.sh"
