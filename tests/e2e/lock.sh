#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Locks: what a bake is made of is written down, and a bake that is held to it is refused with the drift, line by line.
. "$(dirname "$0")/lib.sh"
mkdir "$scratch/r"
cp -r "$recipes/." "$scratch/r/"
cat >"$scratch/r/locked.ini" <<'EOF'
[template]
from = tiny
[files]
/etc/note = note.txt
[install]
80 = d=/usr/local/lib/python3.11/dist-packages/six-1.16.0.dist-info; mkdir -p $d; printf 'Name: six\nVersion: 1.16.0\n' >$d/METADATA; echo six.py >$d/RECORD
81 = mkdir -p /srv/node_modules/left-pad; echo '{"name": "left-pad", "version": "1.3.0"}' >/srv/node_modules/left-pad/package.json
EOF
echo first >"$scratch/r/note.txt"
cd "$scratch/r" || exit 1
lock=$scratch/r/locked.lock

not_ok "without a lock nothing can be held to it" timeout 600 "$parbake" bake --locked ./locked.ini
like "$(cat "$scratch/err")" "bake --lock" "and the error says how to make one"
ok "bake --lock" timeout 900 "$parbake" bake --lock ./locked.ini
is "$(head -n 1 "$lock")" "parbake-lock 1" "the lock says what it is"
is "$(tail -n +2 "$lock" | LC_ALL=C sort -cu 2>&1)" "" "its lines are sorted, each is there once"
for kind in agent debian epoch file kernel monitor npm parbake recipe root wheel; do
	like "$(cut -d' ' -f1 "$lock" | sort -u)" "^$kind$" "a lock has lines of the kind $kind"
done
like "$(cat "$lock")" "^wheel six 1.16.0 sha256:[0-9a-f]{64}$" "what a step has installed for Python"
like "$(cat "$lock")" "^npm left-pad 1.3.0 sha256:" "and for Node"
like "$(cat "$lock")" "^file /etc/note - sha256:$(sha256sum <note.txt | cut -d' ' -f1)$" "a file with its digest"
is "$(grep '^root disk' "$lock" | cut -d' ' -f4)" \
	"$("$parbake" inspect locked --config | python3 -c 'import json,sys; print(json.load(sys.stdin)["disk_raw_digest"])')" \
	"the root disk with the digest that the config has"
cp "$lock" "$scratch/first"
ok "bake --lock of what is up to date" timeout 60 "$parbake" bake --lock ./locked.ini
ok "writes the same bytes" cmp "$lock" "$scratch/first"
ok "an unchanged recipe holds to its lock" timeout 60 "$parbake" bake --locked ./locked.ini
ok "--check finds a locked bake up to date" timeout 60 "$parbake" bake --check ./locked.ini

before=$("$parbake" ls)
drift() { # NAME PATTERN…: bake --locked is refused with status 3, these lines, and nothing published
	local name=$1
	shift
	timeout 600 "$parbake" bake --locked ./locked.ini >"$scratch/out" 2>"$scratch/err"
	is $? 3 "$name: the status is 3"
	for pattern; do
		like "$(cat "$scratch/err")" "$pattern" "$name: the line that tells"
	done
	is "$("$parbake" ls)" "$before" "$name: nothing is published"
}
echo second >note.txt
drift "a file that was changed" "^file /etc/note: locked as sha256:.*, here it is sha256:"
timeout 60 "$parbake" bake --check ./locked.ini --json >"$scratch/check"
is $? 3 "--check of it: the status is 3"
like "$(cat "$scratch/check")" '"from_stage":"root".*"up_to_date":false' "--check says what is to be done anew"
echo first >note.txt
sed -i 's/^debian bash:amd64 [^ ]*/debian bash:amd64 1.0/; s/^debian dash:.*/debian gone:all 1 -/; s/^wheel six 1.16.0/wheel six 1.17.0/' "$lock"
drift "other packages" "^debian bash:amd64: locked as 1.0 sha256:.*, here it is [^ ]+ sha256:" \
	"^debian dash:amd64: not in the lock, here it is" "^debian gone:all: locked as 1, not here$" \
	"^wheel six: locked as 1.17.0 .*, here it is 1.16.0 "
cp "$scratch/first" "$lock"
sed -i 's/1.16.0/1.17.0/' locked.ini
sed -i "/^recipe /d" "$lock"
grep "^recipe " "$scratch/first" >"$scratch/recipe"
drift "a recipe that was changed" "^recipe locked: not in the lock"
not_ok "a lock and --lock at once" "$parbake" bake --lock --locked ./locked.ini

# saved sources: a host whose mirror is gone, with nothing in its cache, makes the locked root from them
cp "$scratch/first" "$lock"
sed -i 's/1.17.0/1.16.0/' locked.ini
not_ok "fetch that does not say where to" "$parbake" fetch ./locked.ini
ok "fetch" timeout 600 "$parbake" fetch ./locked.ini --into "$scratch/saved"
mkdir "$scratch/bin" "$scratch/away"
printf '#!/bin/sh\necho "E: no mirror" >&2; exit 100\n' | tee "$scratch/bin/mmdebstrap" "$scratch/bin/apt-get" >/dev/null
chmod 755 "$scratch/bin/"*
away() { env PARBAKE_HOME="$scratch/away" PATH="$scratch/bin:$PATH" timeout 900 "$parbake" "$@"; }
not_ok "without them it cannot be baked there" away bake --locked ./locked.ini
# another user, who is not root, with another umask, time zone, locale and home, on one processor, in another directory,
# with nothing cached: what is made has the same digests, so the lock has the same bytes
elsewhere=$scratch/away/else\ where
mkdir "$elsewhere"
cp ./*.ini ./*.txt "$elsewhere"
as_another() { (
	cd "$elsewhere" && umask 077 &&
		env PARBAKE_HOME="$scratch/away" PATH="$scratch/bin:$PATH" TZ=Asia/Kathmandu LC_ALL=C LANG=tr_TR.UTF-8 HOME=/nonexistent USER=somebody \
			taskset -c 0 unshare --user --map-user=1234 --map-group=1234 timeout 900 "$@"
); }
is "$(as_another sh -c 'id -u; umask; nproc')" "1234
0077
1" "another user"
ok "bakes it" as_another "$parbake" bake --lock --sources "$scratch/saved" ./locked.ini
ok "to the very same lock" cmp "$elsewhere/locked.lock" "$lock"
rm -rf "$scratch/away" && mkdir "$scratch/away"
mkdir -p "$scratch/x/etc" && echo added >"$scratch/x/etc/added"
tar -C "$scratch/x" -rf "$scratch"/saved/*.tar ./etc/added
away bake --locked --sources "$scratch/saved" ./locked.ini >"$scratch/out" 2>"$scratch/err"
is $? 3 "an archive that was changed: the status is 3"
like "$(cat "$scratch/err")" "^root disk: locked as sha256:.*, here it is sha256:" "and the line that tells"
not_ok "a directory without them" away bake --sources "$scratch/x" ./locked.ini
like "$(cat "$scratch/err")" "save them with .parbake fetch" "is an error that says what to do"

printf 'parbake-lock 9\n' >"$lock"
not_ok "a lock of another version" "$parbake" bake --locked ./locked.ini
like "$(cat "$scratch/err")" "locked.lock: its first line" "is refused by name"
finish
