#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/e2e/pool_cycles.sh, large.
N=${N:-1000} exec bash "$(dirname "$0")/../e2e/pool_cycles.sh"
