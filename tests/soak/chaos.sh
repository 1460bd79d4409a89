#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/e2e/pool_chaos.sh, large.
SECONDS_MAX=${SECONDS_MAX:-5} SEEDS=${SEEDS:-100} exec bash "$(dirname "$0")/../e2e/pool_chaos.sh"
