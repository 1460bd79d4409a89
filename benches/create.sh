#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Create latency of the baked templates, with the cold boot in the same run: `N=200 benches/create.sh`.
set -eu
cd "$(dirname "$0")/.."
n=${N:-200}
./parbake bake base
./parbake bake code-interpreter
./parbake bench create base -n "$n" --boots 5
./parbake bench create base -n "$n" --mode cold --boots 0 --own-pager
./parbake bench create base -n "$n" --mode cold --boots 0 --no-uffd
./parbake bench create base -n "$n" --mode cold --boots 0 --no-premap
./parbake bench create code-interpreter -n "$n" --boots 3 --result python
