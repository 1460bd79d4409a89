# SPDX-License-Identifier: Apache-2.0
# TAP for shell tests. Source it, use ok/is/like, end with `finish`.
# shellcheck shell=bash

tap_n=0 tap_bad=0

# ok NAME COMMAND…: does the command succeed?
ok() {
	local name=$1
	shift
	tap_n=$((tap_n + 1))
	if "$@" >"$scratch/out" 2>"$scratch/err"; then
		echo "ok $tap_n - $name"
	else
		echo "not ok $tap_n - $name"
		echo "# status $? of: $*"
		{ head -c 2000 "$scratch/out"; head -c 2000 "$scratch/err"; } | sed 's/^/# /'
		tap_bad=$((tap_bad + 1))
	fi
}

# not_ok NAME COMMAND…: does it fail? Its words are in $scratch/err for a `like` behind it.
not_ok() {
	local name=$1
	shift
	tap_n=$((tap_n + 1))
	if "$@" >"$scratch/out" 2>"$scratch/err"; then
		echo "not ok $tap_n - $name (it succeeded)"
		tap_bad=$((tap_bad + 1))
	else
		echo "ok $tap_n - $name"
	fi
}

# is GOT WANT NAME
is() {
	tap_n=$((tap_n + 1))
	if [ "$1" = "$2" ]; then
		echo "ok $tap_n - $3"
	else
		echo "not ok $tap_n - $3"
		printf '%s\n' "got:  $1" "want: $2" | sed 's/^/# /'
		tap_bad=$((tap_bad + 1))
	fi
}

# matches WANTED TEXT PATTERN NAME: does grep -E end with the status WANTED (0: it matches, 1: it does not)?
matches() {
	tap_n=$((tap_n + 1))
	grep -qE -- "$3" <<<"$2"
	if [ $? = "$1" ]; then
		echo "ok $tap_n - $4"
	else
		echo "not ok $tap_n - $4"
		printf '%s\n' "got:  $2" "$([ "$1" = 0 ] && echo want || echo unwanted): $3" | sed 's/^/# /'
		tap_bad=$((tap_bad + 1))
	fi
}

# like TEXT PATTERN NAME, unlike TEXT PATTERN NAME: an extended regular expression
like() { matches 0 "$@"; }
unlike() { matches 1 "$@"; }

skip() { # NAME REASON
	tap_n=$((tap_n + 1))
	echo "ok $tap_n - $1 # SKIP $2"
}

# await SECONDS COMMAND…: until it succeeds, at most that long
await() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@"; do
		[ "$SECONDS" -lt "$deadline" ] || return 1
		sleep 0.02
	done
}

# doctor WHAT FIELD: what `parbake doctor` has found out of WHAT ("accelerator", "userfaultfd" …): its "verdict", or its
# "value" where it has one (tcg, kvm). Tests ask this, and neither devices nor what doctor says to people
doctor() {
	"$parbake" doctor --json 2>/dev/null | python3 -c 'import json, sys
print(next((e.get(sys.argv[2], "") for e in json.load(sys.stdin) if e["what"] == sys.argv[1]), ""))' "$@"
}

finish() {
	echo "1..$tap_n"
	[ "$tap_n" -gt 0 ] && [ "$tap_bad" -eq 0 ]
	exit
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
parbake=${PARBAKE:-$top/parbake}
export LC_ALL=C.UTF-8

# A store that is kept as text.
unpack_golden() { # FILE DIR
	python3 - "$1" "$2" <<'END'
import base64, os, sys
files, path = {}, None
for line in open(sys.argv[1], encoding="ascii"):
    if line.startswith("\t"):
        files[path] += line.strip()
    elif not line.startswith("#"):
        path = line.strip()
        files[path] = ""
for path, text in files.items():
    path = os.path.normpath(os.path.join(sys.argv[2], path))
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(path, "wb") as file:
        file.write(base64.b64decode(text))
END
}
