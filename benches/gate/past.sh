#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The past of a repository as a history: old commits built, each with a template of its own baking, measured and kept.
#
#   benches/gate/past.sh DIR [COMMIT…]    entries go into DIR, and their page is DIR/trend.html
#
# Without commits: COUNT (50), spread evenly over the first parents of HEAD since SINCE (the commit that brought
# `bench create`). What is in DIR already is not measured again, so that a run that was ended goes on where it was.
# A commit that does not build, bake or measure within WITHIN seconds (1800) is told and left out. REPO: the repository
# (this one). N: creates of a run (30), RUNS: of each commit (3), MODE: cold. CACHE: a cache directory that all share
# (else each has its own). STEP, NOTE: a commit, and what is noted at the first entry that has it.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd) || exit 2
[ $# -ge 1 ] || { sed -n '5p' "$0" >&2; exit 2; }
mkdir -p "$1" && dir=$(cd "$1" && pwd) || exit 2
shift
repo=${REPO:-$top} parbake=${PARBAKE:-$top/parbake}
step=${STEP:-$(git -C "$repo" log --format=%H --grep='sandboxes start with what the trial translated' | tail -n 1)}
work=$(mktemp -d "${TMPDIR:-/tmp}/parbake-past.XXXXXX") || exit 2
tree=$work/tree home=$work/home

clear_commit() {
	git -C "$repo" worktree remove --force "$tree" 2>/dev/null
	rm -rf "$tree" "$home" "$work"/*.json
}
trap 'clear_commit; rm -rf "$work"; git -C "$repo" worktree prune' EXIT
trap 'exit 130' INT TERM HUP

# spread COUNT: so many of the lines read, the first and the last among them
spread() { awk -v n="$1" '{ l[NR] = $0 } END { for (i = 0; i < n && i < NR; i++) print l[NR <= n ? i + 1 : int(1 + i * (NR - 1) / (n - 1) + 0.5)] }'; }

if [ $# = 0 ]; then
	since=${SINCE:-$(git -C "$repo" log --diff-filter=A --format=%H -- cli/bench_create.c | tail -n 1)}
	mapfile -t commits < <(git -C "$repo" rev-list --reverse --first-parent ${since:+"$since"..}HEAD | spread "${COUNT:-50}")
	set -- "${commits[@]}"
fi

# measure COMMIT: its document, $work/all.json
measure() {
	local run
	git -C "$repo" worktree add -q --detach "$tree" "$1" || return 1
	mkdir -m 700 "$home" && { [ -z "${CACHE:-}" ] || ln -s "$CACHE" "$home/cache"; } || return 1
	cd "$tree" || return 1
	export PARBAKE_HOME=$home
	make -s -j"$(nproc)" all kernel monitor || return 1
	./parbake bake base || return 1
	for ((run = 0; run < ${RUNS:-3}; run++)); do
		./parbake bench create base -n "${N:-30}" --mode "${MODE:-cold}" --boots 0 --save "$work/$run.json" || return 1
	done
	"$parbake" bench report --save "$work/all.json" "$work"/[0-9]*.json
}
export -f measure
export repo tree home work parbake

# Has what is measured the step, and no entry the note yet?
note_of() {
	[ -n "$step" ] && git -C "$repo" merge-base --is-ancestor "$step" "$1" || return
	grep -qs "\"note\":\"${NOTE:-translations kept}\"" "$dir"/*.json || echo "${NOTE:-translations kept}"
}

kept=0 left=0
for word; do
	commit=$(git -C "$repo" rev-parse --verify -q "$word^{commit}") || { echo "$word: no such commit"; left=$((left + 1)); continue; }
	name="$(git -C "$repo" log -1 --format='%h %s' "$commit")"
	if ls "$dir"/*-"${commit:0:12}".json >/dev/null 2>&1; then
		echo "there: $name"
		continue
	fi
	clear_commit
	began=$SECONDS
	if timeout "${WITHIN:-1800}" bash -c 'measure "$1"' - "$commit" >"$work/log" 2>&1; then
		note=$(note_of "$commit")
		(cd "$repo" && "$parbake" bench history add --commit "$commit" --branch main ${note:+--note "$note"} "$dir" "$work/all.json" >/dev/null) || exit 1
		echo "kept, $((SECONDS - began)) s: $name"
		kept=$((kept + 1))
	else
		echo "left out, $((SECONDS - began)) s: $name: $(tail -n 1 "$work/log")"
		left=$((left + 1))
	fi
done
echo "$kept kept, $left left out"
"$parbake" bench history trend "$dir" --branch main --report "$dir/trend.html" && echo "$dir/trend.html"
