#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `make bench-pool`: a pool of its own on this host's templates: creates over the API, by what the pool had ready; many at
# once; the list of 100; what 100 idle spares take, of memory and of time.
#
#   benches/pool.sh [OUT_DIR]    N=200 creates a series; SPARES=100; TEMPLATE=base
#   BENCH=idle benches/pool.sh   `make bench-idle`: N=1500 idle sandboxes, a create and the list beside them
#
# Templates and expanded disks are the host's, read only; whatever runs and rests is below a directory of its own.
set -eu
cd "$(dirname "$0")/.."
out=${1:-.}
template=${TEMPLATE:-base}
./parbake inspect "$template" >/dev/null 2>&1 || ./parbake bake "$template"

if [ -n "${PARBAKE_HOME:-}" ]; then
	store=$PARBAKE_HOME/store cache=$PARBAKE_HOME/cache
elif [ "$(id -u)" = 0 ]; then
	store=/var/lib/parbake cache=/var/cache/parbake
else
	store=${XDG_DATA_HOME:-$HOME/.local/share}/parbake cache=${XDG_CACHE_HOME:-$HOME/.cache}/parbake
fi
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
ln -s "$cache" "$home/cache"
PARBAKE_HOME=$home python3 "benches/${BENCH:-pool}.py" "$template" "$store" "$home" "$out" "${N:-200}" "${SPARES:-100}"
