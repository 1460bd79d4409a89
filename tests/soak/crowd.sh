#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/e2e/pool_crowd.sh, large.
N=${N:-50} exec bash "$(dirname "$0")/../e2e/pool_crowd.sh"
