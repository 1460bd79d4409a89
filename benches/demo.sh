#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What `make demo` shows: templates baked, sandboxes made from them, how long a create takes.
set -eu
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; }
show() {
	printf '$ %s\n' "$*"
	"$@"
}

step "How this host works"
show ./parbake doctor

step "Bake the templates (a second time this does nothing)"
show ./parbake bake base
show ./parbake bake code-interpreter
show ./parbake ls

step "A sandbox is a machine with a kernel of its own"
show ./parbake run base -- uname -srm
show ./parbake run base --shell 'cat /etc/machine-id; echo gone-with-the-sandbox >/root/file'
show ./parbake run base --shell 'cat /etc/machine-id; ls /root'

step "Python that is warm already"
show ./parbake run code-interpreter --code 'import numpy as np; print(np.arange(10).sum())'

step "Bounds: a time limit on every call, output cut and marked"
show ./parbake run base --timeout 1s --shell 'sleep 300 & sleep 300' || true
show ./parbake run base --max-output 64 --shell 'yes | head -n 1000 | tr -d "\n"' || true

step "Create latency"
show ./parbake bench create base -n "${N:-100}"
show ./parbake bench create code-interpreter -n $((${N:-100} / 2)) --result python --boots 1
