#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The templates that come with parbake: base and code-interpreter, baked and used.
. "$(dirname "$0")/lib.sh"
bake base
bake code-interpreter

run() { timeout 60 "$parbake" run "$@"; }
py() { run code-interpreter --code "$1"; }
is "$(run base -- sh -c 'exit 7' >/dev/null 2>&1; echo $?)" 7 "base: the exit status"
ok "base: git, curl, python3, procps" run base --shell 'git --version && curl --version && python3 --version && ps'
is "$(py 'import numpy as np; print(np.arange(10).sum())')" 45 "code-interpreter: numpy"
is "$(py '6 * 7')" 42 "the value of the last expression"
py '1 / 0' >"$scratch/o" 2>"$scratch/e"
is $? 1 "an exception is a failure"
like "$(cat "$scratch/e")" "ZeroDivisionError: division by zero" "with its traceback"
like "$(run code-interpreter --json --code 'import os; os._exit(3)' 2>&1)" "interpreter|context" "a dead interpreter is an error"
is "$(run code-interpreter -t 1s --code 'while True: pass' >/dev/null 2>&1; echo $?)" 124 "an endless loop is timed out"
is "$(py 'import pandas as pd; print(pd.DataFrame({"a": [1, 2]}).a.sum())')" 3 "pandas"
like "$(run code-interpreter --json --code 'import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()')" \
	'"image/png": *"iVBOR' "matplotlib gives a picture"

# clones: nothing random is ever the same twice
draw='import uuid, random, os, numpy as np, tempfile, ssl
print(uuid.uuid4(), random.random(), os.urandom(8).hex(), np.random.rand(), open("/etc/machine-id").read().strip(), uuid.uuid1().hex, ssl.RAND_bytes(8).hex(), tempfile.mktemp())'
# differ WHAT: is nothing in $scratch/a and $scratch/b the same?
differ() {
	local i a b what=(- uuid4 random.random os.urandom numpy.random machine-id uuid1 ssl tempfile)
	for i in 1 2 3 4 5 6 7 8; do
		a=$(cut -d' ' -f$i "$scratch/a") b=$(cut -d' ' -f$i "$scratch/b")
		ok "$1 differ: ${what[i]} ($a, $b)" test -n "$a" -a "$a" != "$b"
	done
}
py "$draw" >"$scratch/a"
py "$draw" >"$scratch/b"
differ "two restores"
t=$(py 'import time; print(int(time.time()))')
ok "the clock is right" test $((t - $(date +%s))) -le 2 -a $(($(date +%s) - t)) -le 20

# spares are themselves from the moment they are made
own_run
mkdir -m 700 "$scratch/state"
printf '[pool]\nsocket = %s\nstate = %s\n[template code-interpreter]\nspares = 2\n' \
	"$scratch/sock" "$scratch/state" >"$scratch/conf"
export PARBAKE_API=unix:$scratch/sock
unset PARBAKE_API_KEY
"$parbake" pool serve --config "$scratch/conf" 2>"$scratch/log" &
daemon=$!
trap '{ timeout 60 "$parbake" kill --all; kill $daemon; wait $daemon; } >/dev/null 2>&1; rm -rf "$scratch"' EXIT
p() { timeout 60 "$parbake" "$@"; }
two_spares() { p pool status --json | python3 -c 'import json,sys
sys.exit(sum(t["spares"] for t in json.load(sys.stdin)["templates"] if t["name"] == "code-interpreter") < 2)'; }
ok "two spares" await 120 two_spares
one=$(p create code-interpreter) two=$(p create code-interpreter)
p code "$one" --code "$draw" >"$scratch/a"
p code "$two" --code "$draw" >"$scratch/b"
differ "two spares"
is "$(p pool status --json | python3 -c 'import json,sys
print([t["hits_spare"] for t in json.load(sys.stdin)["templates"] if t["name"] == "code-interpreter"])')" "[2]" "which they were"
is "$(p exec "$two" -- hostname)" "$two" "with a host name of its own"
t=$(p code "$one" --code 'import time; print(int(time.time()))')
is "$(p code "$one" --timeout 300ms --code 'while True: pass' >/dev/null 2>"$scratch/e"; echo $?)" 124 "a cell is timed out"
like "$(tail -n 1 "$scratch/e")" "^parbake: timed out: the code ran longer than 300 ms" "and that is said"
is "$(p code "$one" --code 'raise TimeoutError("mine")' >/dev/null 2>&1; echo $?)" 1 "which an exception of that name is not"
ok "the clock of a restored machine is right" test $((t - $(date +%s))) -le 2 -a $(($(date +%s) - t)) -le 20

bytes=$("$parbake" inspect base --config | python3 -c 'import json,sys; print(json.load(sys.stdin)["memory_data_bytes"])')
echo "# base: $((bytes >> 20)) MiB of guest memory are not zero"
# 17 MiB of it are the machine's own; the rest is what the recorded programs (shell, git, curl, python3) have read
ok "base: at most 64 MiB of guest memory are not zero" test "$bytes" -le $((64 << 20))
# secrets of the bake are gone: the pip index and CA bundle lent to install steps
ok "verify all" "$parbake" verify
finish
