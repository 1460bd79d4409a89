#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Create latency by commit: bench history, and bench bisect over a repository whose "parbake" makes numbers.
. "$(dirname "$0")/../lib.sh"
export PARBAKE_HOME=$scratch/home FAKE_SEED=$scratch/seed TMPDIR=$scratch/tmp
mkdir -p -m 700 "$PARBAKE_HOME/store" "$TMPDIR"
fake=$top/tests/cli/fake_bench.py
history() { timeout 60 "$parbake" bench history "$@"; }
git() { command git -c user.name=T -c user.email=t@example.org -c init.defaultBranch=main "$@"; }

# measure SLOWER FILE: a document of one commit, three runs
measure() {
	local i
	for i in 1 2 3; do
		FAKE_SLOWER=$1 python3 "$fake" bench create quick -n 20 --mode cold --save "$scratch/run$i.json"
	done
	"$parbake" bench report --save "$2" "$scratch"/run[123].json
}

cd "$scratch" || exit 1
git init -q repo
cd repo || exit 1
for i in $(seq 1 12); do
	git commit -q --allow-empty -m "commit $i"
done

# twelve commits; from the ninth on creates take half as long again
for i in $(seq 1 12); do
	measure "$([ "$i" -ge 9 ] && echo 0.5 || echo 0)" "$scratch/m$i.json"
	history add "$scratch/h" "$scratch/m$i.json" --commit "c$i" --branch main --time "2026-01-$(printf %02d "$i")T00:00:00Z" \
		--note "$([ "$i" = 9 ] && echo 'a sleep came in')" >>"$scratch/added"
done
is "$(ls "$scratch/h" | wc -l)" 12 "a history has a file for each commit"
like "$(cat "$scratch/added")" '/h/20260105T000000Z-c5.json$' "named by time and commit"
ok "shown" history show "$scratch/h"
cp "$scratch/out" "$scratch/shown"
is "$(grep -c '^\*' "$scratch/shown")" 1 "a history marks its one step"
like "$(cat "$scratch/shown")" '^\* 2026-01-09.* c9 .*a sleep came in' "where it happened, with its note"
ok "a history is written as a page" history trend "$scratch/h" --report "$scratch/page.html"
ok "the page of a history is well-formed" python3 -c 'import sys, xml.etree.ElementTree as E; E.parse(sys.argv[1])' "$scratch/page.html"
like "$(tr '\n' ' ' <"$scratch/page.html")" '<code>c9</code>.*class="bad">p50 [0-9.]+ → [0-9.]+ ms \(\+(4[0-9]|5[0-9]) %\)' "the step and its size stand on it"
is "$(grep -c 'class="step"' "$scratch/page.html")" 1 "the page of a history has the step in its picture"
history gate "$scratch/h" >"$scratch/out"
is "$? $(tail -n 1 "$scratch/out")" "1 verdict: slower" "the gate: the newest is slower than what was before"
rm "$scratch"/h/*-c9.json "$scratch"/h/*-c1[012].json
history gate "$scratch/h" >"$scratch/out"
is $? 0 "a history without the slow commits passes the gate"
mkdir "$scratch/few"
cp "$scratch"/h/*-c[123].json "$scratch/few"
history gate "$scratch/few" >"$scratch/out"
is $? 3 "three entries are too few to say"
history gate "$scratch/h" --branch other >"$scratch/out"
is $? 2 "a branch without entries cannot be compared with"

# 3 % a commit: the level that is compared with stays where it is
for i in $(seq 1 10); do
	measure "$(awk -v i="$i" 'BEGIN { print 1.03 ^ i - 1 }')" "$scratch/creep.json"
	history add "$scratch/h" "$scratch/creep.json" --commit "d$i" --branch main --time "2026-02-$(printf %02d "$i")T00:00:00Z" >/dev/null
	history gate "$scratch/h" >"$scratch/out" || break
done
ok "3 % a commit is seen after $i commits" test "$i" -le 4
history add "$scratch/h" "$scratch/m1.json" >"$scratch/out"
like "$(cat "$scratch/out")" "$(git rev-parse --short=12 HEAD)" "commit, branch and time are git's own where not said"
echo '{"format":1,"host":{},"runs":[]}' >"$scratch/h/alien.json"
not_ok "a file that is no entry" history show "$scratch/h"
like "$(cat "$scratch/err")" 'alien.json: not an entry' "an entry that is none is named"

# bisect: commit 3 does not build, 4 makes nothing, 5 is slower
git init -q "$scratch/code"
cd "$scratch/code" || exit 1
for i in 1 2 3 4 5 6 7; do
	echo "true # $i" >build.sh
	slower=0
	[ $i -ge 5 ] && slower=0.4
	printf '#!/bin/sh\nFAKE_SLOWER=%s exec python3 %s "$@"\n' $slower "$fake" >program
	[ $i = 3 ] && echo "exit 1" >build.sh
	[ $i = 4 ] && printf '#!/bin/sh\nexit 1\n' >program
	chmod +x program
	git add -A
	git commit -qm "number $i"
done
timeout 300 "$parbake" bench bisect --template quick --build 'sh build.sh' --program program HEAD~6 HEAD -- --any-load --rounds 14 \
	>"$scratch/out" 2>"$scratch/err"
cat "$scratch/out" "$scratch/err" >"$scratch/said"
for i in 3 4 5; do
	like "$(cat "$scratch/said")" "$(git rev-parse "HEAD~$((7 - i))")" "commit $i may be the one: what cannot be told is not called bad"
done
unlike "$(sed -n '/There are only/,$p' "$scratch/said")" "$(git rev-parse HEAD~5)|$(git rev-parse HEAD~1)" "a bisection asks for no other commit"
is "$(git worktree list | wc -l)" 1 "no work tree is left"
timeout 300 "$parbake" bench bisect --template quick --build 'sh build.sh' --program program HEAD~4 HEAD >"$scratch/out" 2>"$scratch/err"
is $? 1 "a good commit that does not build: no answer"
like "$(cat "$scratch/err")" 'build HEAD~4' "a bisection says which build failed"
# with a commit 4 that works there is one answer
git checkout -q --detach HEAD~3
cp program broken
sed "s/0.4/0/" <(git show main:program) >program
git commit -qam "number 4, mended"
git checkout -q main -- program build.sh
git commit -qm "number 5, again"
timeout 300 "$parbake" bench bisect --template quick --build 'sh build.sh' --program program HEAD~4 HEAD -- --any-load --rounds 14 \
	>"$scratch/out" 2>"$scratch/err"
is $? 0 "a series that can be told has an answer"
like "$(cat "$scratch/out")" "$(git rev-parse HEAD) is the first bad commit" "the right one"

# the past of a repository: commit 2 does not build, 3 brings a step
git init -q "$scratch/past"
cd "$scratch/past" || exit 1
for i in 1 2 3; do
	printf 'all:\n\t@exit %s\nkernel monitor:\n' "$([ $i = 2 ] && echo 1 || echo 0)" >Makefile
	printf '#!/bin/sh\n[ $1 != bake ] || exec mkdir -p "$PARBAKE_HOME/store"\nFAKE_SLOWER=%s exec python3 %s "$@"\n' \
		"$([ $i = 3 ] && echo -0.5 || echo 0)" "$fake" >parbake
	chmod +x parbake
	git add -A
	git commit -qm "number $i"
done
past() { REPO=$scratch/past N=10 RUNS=2 STEP=$(git rev-parse HEAD) timeout 120 bash "$top/benches/gate/past.sh" "$scratch/entries" "$@"; }
ok "old commits are built, measured and kept" past HEAD~2 HEAD~1 HEAD
like "$(cat "$scratch/out")" 'left out, [0-9]+ s: [0-9a-f]+ number 2' "a commit that does not build is told"
like "$(cat "$scratch/out")" '^2 kept, 1 left out' "and the others are kept"
ok "the history of old commits is shown" history show "$scratch/entries" --branch main
like "$(cat "$scratch/out")" "$(git rev-parse --short=12 HEAD) .* translations kept" "the entry that first has a step is noted"
is "$(ls "$scratch/entries" | wc -l) $(git worktree list | wc -l) $(find "$TMPDIR" -name 'parbake-past.*' | wc -l)" "3 1 0" \
	"two entries and a page, and no work tree or directory is left"
ok "what is kept is not measured again" past HEAD~2 HEAD
like "$(cat "$scratch/out")" '^0 kept, 0 left out' "a second time keeps nothing new"
finish
