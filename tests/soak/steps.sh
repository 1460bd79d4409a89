#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build/tests/test_memory_steps, large.
cd "$(dirname "$0")/../.." && PARBAKE_STEPS=${STEPS:-1000} exec "${BUILD:-build}/tests/test_memory_steps"
