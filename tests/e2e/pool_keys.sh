#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Keys of one pool beside each other: one takes all that it can of templates, another still works; what each may remove.
. "$(dirname "$0")/lib.sh"
bake "$recipes/tiny.ini"
cp -r "$recipes" "$scratch/recipes"
sed -i 's/^name = tiny/name = other/' "$scratch/recipes/tiny.ini"
bake "$scratch/recipes/tiny.ini"
own_run
export PARBAKE="$parbake"
# key NAME: the key and its digest
key() { "$parbake" pool key "$1" | sed -nE 's/.*(e2b_[0-9a-f]+).*/\1/p; s/^digest = //p'; }
mapfile -t keys < <(key greedy; key modest)
python3 "$top/tests/e2e/pool_keys.py" "$scratch" "${keys[@]}"
