#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The examples of docs/ci, run line by line: in a shallow clone, twice in one directory, without a recipe before, and
# with one that makes creates slower. What installs and builds is replaced by programs that note how they were called;
# `bench ab` is the real one, of creates that are numbers (fake_bench.py).
. "$(dirname "$0")/../lib.sh"

export PARBAKE_HOME=$scratch/home FAKE_SEED=$scratch/seed TMPDIR=$scratch CALLS=$scratch/calls
export GIT_CONFIG_GLOBAL=$scratch/gitconfig GIT_CONFIG_SYSTEM=/dev/null
export REAL=$parbake FAKE=$top/tests/cli/fake_bench.py
git config --global user.name T
git config --global user.email t@example.org
git config --global protocol.file.allow always
git config --global uploadpack.allowAnySHA1InWant true
git config --global init.defaultBranch main

# programs that note and do nothing; make makes parbake's home
mkdir "$scratch/bin" "$scratch/parbake"
for name in apt-get make chmod; do
	printf '#!/bin/sh\necho "%s $*" >>"$CALLS"\n' $name >"$scratch/bin/$name"
done
cat >"$scratch/parbake/parbake" <<'X'
#!/bin/sh
# bench ab is the real one, of fakes; bake, verify, run are noted
echo "parbake $*" >>"$CALLS"
mkdir -p -m 700 "$PARBAKE_HOME/store"
case "$1 $2" in
"bench ab")
	while [ $# -gt 2 ]; do
		words="$words $1"
		shift
	done
	exec "$REAL" $words --any-load --rounds "${ROUNDS:-14}" "$FAKE $1" "$FAKE $2"
	;;
"bake "*) [ -f "$2" ] || exit 1 ;;
esac
X
chmod +x "$scratch"/bin/* "$scratch/parbake/parbake"
git -C "$scratch/parbake" init -q
git -C "$scratch/parbake" add -A
git -C "$scratch/parbake" commit -qm parbake
export PATH=$scratch/bin:$PATH

# a repository of recipes: its first commit has none, the second one, the third changes it
git init -q "$scratch/origin"
user() { git -C "$scratch/origin" "$@"; }
echo recipes >"$scratch/origin/README"
user add -A && user commit -qm none
mkdir "$scratch/origin/recipes"
echo one >"$scratch/origin/recipes/analytics.ini"
user add -A && user commit -qm one
echo two >"$scratch/origin/recipes/analytics.ini"
user commit -qam two
third=$(user rev-parse HEAD) second=$(user rev-parse HEAD~1) first=$(user rev-parse HEAD~2)

# clone COMMIT DIRECTORY: as a runner has it, one commit deep
clone() {
	git init -q "$2"
	git -C "$2" remote add origin "file://$scratch/origin"
	git -C "$2" fetch -q --depth=1 origin "$1"
	git -C "$2" checkout -q FETCH_HEAD
}

# github COMMIT DIRECTORY: each step, as the runner runs it; the status is that of the first that fails
github() (
	cd "$2" || exit 99
	ln -sfn "$scratch/parbake" parbake
	export GITHUB_ENV=$scratch/github.env GITHUB_PATH=$scratch/github.path
	: >"$GITHUB_ENV"
	: >"$GITHUB_PATH"
	for step in "$scratch"/github/*.sh; do
		while read -r line; do export "${line?}"; done <"$GITHUB_ENV"
		while read -r line; do PATH=$line:$PATH; done <"$GITHUB_PATH"
		BASE=$1 sh -e "$step" || exit
	done
)

# gitlab BASE DIRECTORY: all lines in one shell that ends at the first that fails
gitlab() (
	cd "$2" || exit 99
	export CI_PROJECT_DIR=$2 CI_MERGE_REQUEST_DIFF_BASE_SHA=$1
	export PARBAKE_DIR=$scratch/parbake PARBAKE_HOME=$2/parbake-home XDG_CACHE_HOME=$2/build-cache
	PARBAKE_REF=$(git -C "$scratch/parbake" rev-parse HEAD)
	export PARBAKE_REF
	sh -e "$scratch/gitlab/00.sh"
)

git -C "$scratch/parbake" remote add origin "file://$scratch/parbake"
for service in github gitlab; do
	mkdir "$scratch/$service"
	file=$(ls "$top"/docs/ci/$service-*.yml)
	ok "$service: the example is read" python3 "$top/tests/cli/ci_lines.py" "$file" "$scratch/$service"
	cp "$scratch/out" "$scratch/$service.facts"
	like "$(cat "$scratch/$service.facts")" '^timeout(-minutes)? [0-9]+' "$service: a job that hangs ends"
	like "$(cat "$scratch/$service.facts")" '^key kernel-monitor-' "$service: kernel and monitor are cached by what they are made from"
	unlike "$(cat "$scratch/$service.facts")" '^key .*(run_id|CI_JOB_ID)' "$service: no cache is new each time"

	# run NAME WANTED BASE COMMIT DIRECTORY
	run() {
		: >"$CALLS"
		[ -d "$scratch/$5" ] || clone "$4" "$scratch/$5"
		$service "$3" "$scratch/$5" >"$scratch/out" 2>"$scratch/err"
		is $? "$2" "$service: $1"
	}
	run "a change to a recipe passes" 0 "$second" "$third" "$service-a"
	is "$(grep -c '^parbake bake' "$CALLS")" 2 "$service: both recipes are baked"
	is "$(cat "$scratch/$service-a/before/recipes/analytics.ini")" one "$service: the old one as it was, though the clone has not its commit"
	like "$(cat "$CALLS")" '^parbake bench ab .*analytics:before analytics$' "$service: and measured in turn"
	like "$(cat "$scratch/out")" '^verdict: same' "$service: the verdict is shown"
	ok "$service: the page and the document are there" test -s "$scratch/$service-a/bench.html" -a -s "$scratch/$service-a/bench.json"
	run "a second time in the same directory" 0 "$second" "$third" "$service-a"
	FAKE_SLOW_TEMPLATE=analytics run "a slower one fails" 1 "$second" "$third" "$service-b"
	like "$(cat "$scratch/out")" '^verdict: slower' "$service: and is called so"
	ROUNDS=3 run "one that is not decided passes" 0 "$second" "$third" "$service-b"
	FAKE_SLOW_TEMPLATE=analytics run "no recipe before: passes" 0 "$first" "$second" "$service-c"
	like "$(cat "$scratch/out")" 'nothing to compare with' "$service: says that nothing was compared"
	unlike "$(cat "$CALLS")" 'bench ab' "$service: and compares nothing with itself"
	run "a base that nobody has: the commit before" 0 0000000000000000000000000000000000000000 "$third" "$service-d"
	like "$(cat "$CALLS")" 'bench ab' "$service: is measured against"
	FAKE_FAILS=1 run "creates that all fail are not passed over" 1 "$second" "$third" "$service-e"
done

facts=$(cat "$scratch/github.facts")
like "$facts" '^contents read' "github: the job may read and no more"
is "$(grep '^uses' "$scratch/github.facts" | grep -vcE '@[0-9a-f]{40} # v[0-9]')" 0 "github: every action is pinned by its commit"
is "$(grep -c '^uses' "$scratch/github.facts")" 5 "github: all five"
like "$(cat "$scratch"/github/*.sh)" 'chmod a\+rw /dev/kvm' "github: /dev/kvm is made usable where it is"
for dir in kernel vmm/qemu/trimmed common/cached-build.sh; do
	like "$facts" "hashFiles\\(.*$dir" "github: the cache of kernel and monitor depends on $dir"
	ok "which is there" test -e "$top/$dir"
done
finish
