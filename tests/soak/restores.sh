#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Restores of parbake-vmm, one after the other: no descriptor, process or memory is left.
. "$(dirname "$0")/../lib.sh"
export PARBAKE_HOME=$scratch/home
if [ -w /dev/kvm ]; then
	before=$(pgrep -c '^parbake-vmm$')
	ok "${N:-10000} restores in a row leave no descriptor" "$parbake" bench vm -n "${N:-10000}"
	grep -v '^ ' "$scratch/out" | sed 's/^/# /'
	is "$(pgrep -c '^parbake-vmm$')" "$before" "and no process"
else
	echo "# there is no /dev/kvm to make machines with"
	ok "the program that would is built" "$top/build/parbake-vmm" --version
fi
finish
