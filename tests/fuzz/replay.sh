#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every fuzz target over its corpus (tests/fuzz/corpus/NOUN, and what generators left in
# BUILD/corpus/NOUN): one result a target. A target without inputs fails: it would test nothing.
set -u
build=$1 n=0 status=0
for target in "$build"/fuzz/fuzz_*; do
	case $target in *.d) continue ;; esac
	noun=${target##*/fuzz_}
	n=$((n + 1))
	mapfile -t inputs < <(find "tests/fuzz/corpus/$noun" "$build/corpus/$noun" -type f 2>/dev/null | sort)
	if [ ${#inputs[@]} -gt 0 ] && timeout 120 "$target" "${inputs[@]}"; then
		echo "ok $n - $noun: ${#inputs[@]} inputs"
	else
		echo "not ok $n - $noun: ${#inputs[@]} inputs"
		status=1
	fi
done
echo "1..$n"
exit $status
