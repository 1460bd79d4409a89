#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# clang-format and clang-tidy over the tree's own sources; both only report.
set -u
cd "$(dirname "$0")/.." || exit 1
status=0
# shellcheck disable=SC2046 # names without spaces
clang-format --dry-run -Werror $(git ls-files '*.c' '*.h') || status=1
# shellcheck disable=SC2046
clang-tidy --quiet -warnings-as-errors='*' $(git ls-files '*.c' | grep -v '^tests/') -- \
	-std=gnu11 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -I. -DPARBAKE_VERSION='"lint"' \
	-DPARBAKE_LIBDIR='"/lint"' || status=1
exit $status
