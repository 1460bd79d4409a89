#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The source stage runs on the host, as root, with the host's own apt: it must leave the host as it was, also when
# it is killed in the middle.
. "$(dirname "$0")/lib.sh"
export PARBAKE_HOME=$scratch/home TMPDIR=$scratch/tmp
mkdir "$TMPDIR" "$scratch/full"
lists() { (cd /var/lib/apt/lists && find . -type f ! -name lock -printf '%P %s\n' | sort); }
host() { lists; ls /etc/apt /etc/apt/sources.list.d /etc/apt/apt.conf.d; cat /etc/machine-id /etc/hosts; mount; }

before=$(host)
ok "the host's apt has lists" test -n "$(lists)"
"$parbake" bake "$recipes/tiny.ini" >/dev/null 2>&1 &
pid=$!
ok "mmdebstrap begins" await 120 eval "ls $TMPDIR/parbake-*/mmdebstrap.*/usr >/dev/null 2>&1"
kill -9 $pid
wait $pid 2>/dev/null
ok "kill -9 in the middle: its directory goes" await 20 eval "[ -z \"\$(ls $TMPDIR)\" ]"
is "$(find "$PARBAKE_HOME/cache" -type f ! -name '*.lock' ! -name '*.json')" "" "and no half of an archive stays"
sed 's/^suite.*/&\npackages = no-such-package-anywhere/' "$recipes/tiny.ini" >"$scratch/bad.ini"
cp "$recipes/motd.txt" "$scratch"
not_ok "a package that is not there fails the bake" timeout 300 "$parbake" bake "$scratch/bad.ini"
like "$(cat "$scratch/err")" "no-such-package-anywhere" "it is named"
like "$(cat "$scratch/err")" "mmdebstrap failed .exit status" "and how mmdebstrap ended"
is "$(ls "$TMPDIR")" "" "its directory is gone"
if mount -t tmpfs -o size=30m tmpfs "$scratch/full" 2>/dev/null; then
	not_ok "a full disk under the cache fails the bake" env PARBAKE_HOME="$scratch/full" timeout 600 "$parbake" bake \
		"$recipes/tiny.ini"
	like "$(cat "$scratch/err")" "No space left" "it is told"
	is "$(ls "$TMPDIR")" "" "the directory is gone"
	umount "$scratch/full"
else
	skip "a full disk under the cache" "tmpfs cannot be mounted here"
fi
ok "a whole bake" timeout 900 "$parbake" bake "$recipes/tiny.ini"
is "$(ls "$TMPDIR")" "" "its directory is gone"
is "$(host)" "$before" "the host's apt, files and mounts are as they were"

# the first part of a bake needs neither kernel nor monitor
sed 's/^name = .*/name = early/; s/^disk = .*/disk = 192M/' "$recipes/tiny.ini" >"$scratch/early.ini"
cp "$recipes/motd.txt" "$scratch/"
early() { env PARBAKE_KERNEL=/no/kernel PARBAKE_QEMU=/no/qemu timeout 300 "$parbake" bake "$scratch/early.ini" "$@"; }
not_ok "without a kernel nothing is baked" early
ok "a root disk is made without a kernel and a monitor" early --until root --force
unlike "$("$parbake" ls)" "^early " "which publishes nothing"
ok "the bake" timeout 600 "$parbake" bake "$scratch/early.ini"
like "$(cat "$scratch/err" "$scratch/out")" "root +cached" "finds it"
"$parbake" rm early >/dev/null
finish
