#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What is read changes nothing; what could not be written was not said.
. "$(dirname "$0")/../lib.sh"
export PARBAKE_HOME=$scratch/home

not_ok "ls of a store that is not there" "$parbake" ls --store "$scratch/typo"
like "$(cat "$scratch/err")" "no store in $scratch/typo" "says so"
ok "ls of a store that is not there makes none" test ! -e "$scratch/typo"
ok "ls before the first bake" "$parbake" ls
like "$(cat "$scratch/err")" "parbake bake base" "says what to do"

mkdir -p "$scratch/store/blobs/sha256"
echo '{"imageLayoutVersion":"1.0.0"}' >"$scratch/store/oci-layout"
echo '{"schemaVersion":2,"manifests":[]}' >"$scratch/store/index.json"
ok "ls of a store that others made" "$parbake" ls --store "$scratch/store"
is "$(cd "$scratch/store" && find . -type f | sort | tr '\n' ' ')" "./index.json ./oci-layout " "leaves it as it was"

is "$(bash -c '"$0" help >/dev/full' "$parbake" 2>"$scratch/err"; echo $?)" 1 "a full disk behind standard output"
like "$(cat "$scratch/err")" "standard output.*No space left" "a full standard output is told"
is "$(bash -c '"$0" doctor --json >/dev/full' "$parbake" 2>/dev/null; echo $?)" 1 "a full standard output is no success"
is "$(bash -c '"$0" version >&-' "$parbake" 2>/dev/null; echo $?)" 1 "a closed standard output is no success"
ok "standard input and error that are closed" bash -c '"$0" version <&- 2>&-' "$parbake"
finish
