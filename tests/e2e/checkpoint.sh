#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Captures of running sandboxes: taken while they run, restored as themselves and as others, over generations,
# with and without userfaultfd or a look into the monitor, of both monitors; refused where damaged; leaving the sandbox alone where
# they fail; published.
. "$(dirname "$0")/lib.sh"
driver=$top/build/e2e/checkpoint_driver
export PARBAKE_EXE=$parbake

bake "$recipes/tiny.ini"
ok "the driver is built" make -s -C "$top" build/e2e/checkpoint_driver
at=$PARBAKE_HOME/captures-test
rm -rf "$at"
mkdir -p "$at"
umount_small() { ! mountpoint -q "$scratch/small" || umount "$scratch/small"; }
trap 'umount_small; rm -rf "$scratch" "$at"' EXIT

# begin [NAME=VALUE…]: a driver of its own, the template opened; end: its end
begin() {
	coproc DRIVER { exec env "$@" timeout 600 "$driver" 2>>"$scratch/driver.err"; }
	local out=${DRIVER[0]} in=${DRIVER[1]}
	driver_pid=$DRIVER_PID
	# a coprocess's own descriptors are not there in subshells
	exec {to}>&"$in" {from}<&"$out"
	exec {in}>&- {out}<&-
	got=
	ask template "${template:-tiny}"
}
end() {
	exec {to}>&- {from}<&-
	wait "$driver_pid" 2>/dev/null
}
# ask COMMAND…: the driver's answer to $got
ask() {
	echo "$*" >&"$to"
	got=
	read -r -t 60 -u "$from" got
}
yes() { # NAME COMMAND…
	local name=$1
	shift
	ask "$@"
	like "$got" '^ok' "$name"
}
no() { # NAME PATTERN COMMAND…
	local name=$1 pattern=$2
	shift 2
	ask "$@"
	like "$got" "^error $pattern" "$name"
}
# guest N COMMAND: what it prints
guest() {
	ask exec "$@"
	echo "${got#ok }"
}
number() { echo "$got" | cut -d ' ' -f "$1"; }

# Something in every place: tmpfs, disk, a process that counts; deleted and overwritten files.
prepare() { # N
	yes "sandbox $1 has files in memory" exec "$1" "mkdir -p /run/x && head -c 6000000 /dev/urandom >/run/x/data && sync"
	yes "the sandbox changes its disk" exec "$1" "head -c 3000000 /dev/urandom >/root/data && rm -f /etc/tiny/copy && echo new >>/etc/tiny/words && sync"
	yes "the sandbox has memory that it used and freed" exec "$1" "dd if=/dev/urandom of=/run/x/gone bs=1M count=8 2>/dev/null && rm /run/x/gone && dd if=/dev/zero of=/run/x/zeros bs=1M count=8 2>/dev/null"
	yes "the sandbox runs a process" spawn "$1" 'echo $$ >/run/x/pid; i=0; while :; do i=$((i+1)); echo $i >/run/x/new; mv /run/x/new /run/x/count; sleep 0.02; done'
	yes "the sandbox's process counts" exec "$1" 'i=0; until [ -s /run/x/count ]; do sleep 0.02; i=$((i+1)); [ $i -lt 500 ]; done'
}
facts() { guest "$1" "cat /run/x/data /root/data /run/x/zeros /run/x/pid | sha256sum; "; }
disk() { guest "$1" "cat /root/gen* /etc/tiny/words 2>/dev/null | tr '\\n' ' '; ls /etc/tiny"; }
count() { guest "$1" "cat /run/x/count"; }
# moves N: the process counts on
moves() {
	local was
	was=$(count "$1")
	ask exec "$1" "i=0; until [ \$(cat /run/x/count) -gt $was ]; do sleep 0.02; i=\$((i+1)); [ \$i -lt 500 ]; done"
	like "$got" '^ok' "the process counts on from $was"
}
who() { guest "$1" 'cat /etc/machine-id /proc/sys/kernel/hostname | tr "\n" " "'; }

# generations NAME [NAME=VALUE…]: three, each captured, killed, restored as itself
generations() {
	local name=$1 want me before
	shift
	begin "$@"
	like "$got" '^ok' "$name: the template is opened"
	yes "$name: a sandbox" create 0
	prepare 0
	want=$(facts 0) me=$(who 0)
	yes "$name: a capture, and it goes on" capture 0 "$at/$name-0" go
	echo "# $name: memory $(number 2) bytes, disk $(number 3), stopped $(($(number 4) / 1000)) µs"
	moves 0
	is "$(facts 0)" "$want" "a capture changes nothing of its sandbox"
	for i in 1 2 3; do
		yes "generation $i" restore "$i" "$at/$name-$((i - 1))" same
		echo "# restored in $(($(number 2) / 1000)) µs"
		is "$(facts "$i")" "$want" "memory, disk and process are what they were"
		is "$(who "$i")" "$me" "a sandbox restored as itself has its identity"
		before=$(count "$i")
		moves "$i"
		yes "a restored sandbox writes to its disk" exec "$i" "echo $i >/root/gen$i; sync"
		like "$(disk "$i")" "^$(seq -s ' ' "$i") one two new" "the disk has what came before"
		yes "a restored sandbox is paused" capture "$i" "$at/$name-$i" stop
		no "a paused one is not captured again" EINVAL capture "$i" "$at/$name-again" go
		yes "the paused sandbox is gone when it is killed" kill "$i"
		ok "the disk of a capture is sound" qemu-img check -q -f qcow2 "$at/$name-$i/disk"
	done
	yes "the last generation is restored" restore 4 "$at/$name-3" same
	is "$(facts 4)" "$want" "the last generation is exact"
	ok "the last generation counts from where the third was" test "$(count 4)" -ge "$before"
	no "what it deleted is gone" "EIO.*No such file" exec 4 "ls /etc/tiny/copy"
	end
}

# ---- exactness --------------------------------------------------------------------------------

generations uffd
generations private CAPTURE_PRIVATE=1

# a parbake that may not look into its monitors
if setpriv --bounding-set=-sys_ptrace true 2>/dev/null; then
	generations asked setpriv --bounding-set=-sys_ptrace
else
	skip "without CAP_SYS_PTRACE" "setpriv cannot take it away here"
fi

# ---- forks --------------------------------------------------------------------------------------

begin
yes "a sandbox" create 0
yes "the sandbox has a secret of its own" exec 0 "head -c 16 /dev/urandom >/run/secret"
yes "the sandbox with a secret is captured" capture 0 "$at/fork" go
secret=$(guest 0 "sha256sum </run/secret") me=$(who 0)
for i in 1 2 3; do
	yes "fork $i" restore "$i" "$at/fork" fork
	is "$(guest "$i" "sha256sum </run/secret")" "$secret" "a fork has the memory of its source"
done
for i in 0 1 2 3; do
	who "$i" | tr ' ' '\n' | sed '/^$/d'
	guest "$i" "head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \\n'"
	guest "$i" "cat /proc/sys/kernel/random/uuid"
done >"$scratch/distinct"
is "$(sort -u "$scratch/distinct" | wc -l)" 16 "ids, host names, random numbers: all distinct"
now=$(guest 1 "date +%s")
ok "the clock is right" test $((now - $(date +%s))) -ge -2 -a $((now - $(date +%s))) -le 2
yes "a fork restored as itself goes on" restore 4 "$at/fork" same
is "$(who 4)" "$me" "keeps its names"
not_ok "a sandbox restored as itself does not repeat random numbers" grep -qx "$(guest 4 "head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \\n'")" "$scratch/distinct"
yes "a fork writes" exec 1 "head -c 16 /dev/urandom >/run/secret; echo mine >/root/mine; sync"
is "$(guest 2 "sha256sum </run/secret; test ! -e /root/mine")" "$secret" "a file of one fork is seen by no other"
end

# ---- what may go wrong while it is taken --------------------------------------------------------

for point in state memory disk compress before-publish; do
	begin PARBAKE_FAULT=restore.capture.$point:1=EIO
	yes "a sandbox" create 0
	yes "the sandbox that is to fail holds something" exec 0 "echo held >/run/held"
	no "EIO ($point): no capture" "EIO.*Input/output error" capture 0 "$at/eio" go
	ok "a capture that failed leaves nothing" test ! -e "$at/eio"
	is "$(guest 0 "cat /run/held")" held "a sandbox runs on after a capture that failed"
	[ "$point" = disk ] && yes "and is captured later" capture 0 "$at/eio" stop
	end
	rm -rf "$at/eio"
done

mkdir "$scratch/small"
if mount -t tmpfs -o size=3m tmpfs "$scratch/small" 2>/dev/null; then
	begin
	yes "a sandbox" create 0
	yes "the sandbox has much in memory" exec 0 "head -c 9000000 /dev/urandom >/run/much"
	want=$(guest 0 "sha256sum </run/much")
	no "no space: no capture" "ENOSPC.*No space left" capture 0 "$scratch/small/c" stop
	is "$(ls "$scratch/small")" "" "a capture without space leaves nothing"
	is "$(guest 0 "sha256sum </run/much")" "$want" "a sandbox runs on after a capture without space"
	yes "elsewhere there is room" capture 0 "$at/room" stop
	end
	umount_small
	rm -rf "$at/room"
else
	skip "no space" "tmpfs cannot be mounted here"
fi

begin PARBAKE_FAULT=restore.capture.before-publish
yes "a sandbox" create 0
ask capture 0 "$at/killed" go
is "$got" "" "killed on the way"
end
begin
ok "what is left" test -e "$at/killed/memory" -a ! -e "$at/killed/capture.json"
no "a capture that was killed is no capture" "ENOENT.*not complete" restore 0 "$at/killed" same
no "a directory that is not there is no capture" "ENOENT" restore 0 "$at/nowhere" same
no "a directory that is there is not written over" "ENOENT.*not complete" restore 0 "$at/killed" same
yes "a sandbox" create 1
no "a directory of a killed capture is not written over" "EEXIST" capture 1 "$at/killed" go
ok "the memory of a killed capture is still there" test -e "$at/killed/memory"

# ---- damage -------------------------------------------------------------------------------------

flip() { # FILE: one bit in the middle
	local size
	size=$(stat -c %s "$1")
	printf "\\x$(printf %02x $((0x$(od -An -tx1 -j $((size / 2)) -N 1 "$1" | tr -d ' ') ^ 1)))" |
		dd of="$1" bs=1 seek=$((size / 2)) conv=notrunc 2>/dev/null
}
for file in memory disk state capture.json; do
	cp -a "$at/fork" "$at/bad"
	flip "$at/bad/$file"
	no "$file damaged: refused, by name" "EBADMSG the capture $at/bad: $file.*damaged" restore 2 "$at/bad" same
	truncate -s 100 "$at/bad/$file"
	no "$file cut short: refused" "EBADMSG the capture $at/bad: $file" restore 2 "$at/bad" same
	rm "$at/bad/$file"
	no "$file missing: refused" "(EBADMSG|ENOENT) the capture $at/bad: .*$file" restore 2 "$at/bad" same
	rm -rf "$at/bad"
done
yes "a sound one beside it is restored" restore 2 "$at/fork" same
end

# ---- published ----------------------------------------------------------------------------------

begin
yes "a capture is published" publish "$at/uffd-2" tiny-capture
end
ok "a published capture verifies" "$parbake" verify tiny-capture
is "$(timeout 120 "$parbake" run tiny-capture -- sh -c 'cat /root/gen* | tr "\n" " "')" "1 2 " "a published capture runs"
if command -v skopeo >/dev/null; then
	ok "others can read it" skopeo inspect --raw "oci:$PARBAKE_HOME/store:tiny-capture"
else
	skip "others can read it" "skopeo is not installed"
fi
template=tiny-capture
begin
yes "a sandbox of it" create 0
moves 0
yes "a sandbox of a published capture is captured" capture 0 "$at/second" go
want=$(facts 0)
yes "which is published, too" publish "$at/second" tiny-second
yes "restored" restore 1 "$at/second" fork
is "$(facts 1)" "$want" "a second capture restores exactly"
no "not of the template before it" "EINVAL.*tiny@sha256:.* not of tiny-capture" restore 2 "$at/fork" fork
end
ok "the second verifies" "$parbake" verify tiny-second
template=tiny-second
begin
yes "a sandbox of the second" create 0
is "$(facts 0)" "$want" "a restored second capture is exact"
end
unset template

# ---- the template is kept as long as a capture needs it ------------------------------------------

collect() {
	find "$PARBAKE_HOME/store/blobs" -type f -exec touch -d '2 days ago' {} +
	"$parbake" gc
}
digest=$("$parbake" inspect tiny-capture | sed -n 's/.*"digest": "\(sha256:[0-9a-f]*\)",*$/\1/p' | head -n 1)
"$parbake" rm tiny-capture >/dev/null
"$parbake" rm tiny-second >/dev/null
ok "garbage is collected" collect
template=tiny-capture@$digest
begin
like "$got" '^ok' "the template without a name is there"
yes "the capture of a published capture is restored" restore 0 "$at/second" same
rm -rf "$at/second"
ok "a template is collected when no capture needs it" collect
no "a sandbox that ran on is not captured: it could never be restored" "ENOENT.*not in .*any more" capture 0 "$at/never" stop
like "$(facts 0)" '^[0-9a-f]{64}' "a sandbox whose template was collected runs on"
end
template=tiny-capture@$digest
begin
like "$got" '^error ENOENT' "no sandbox is made of a collected template"
end
unset template

# ---- the other monitor ----------------------------------------------------------------------------

if [ -x "$top/build/parbake-qemu" ]; then
	packaged=$(command -v qemu-system-x86_64)
	ok "the distribution's QEMU bakes the template" env PARBAKE_QEMU="$packaged" timeout 600 "$parbake" bake \
		"$recipes/tiny.ini" --tag packaged
	template=tiny:packaged
	generations packaged
	"$parbake" rm tiny:packaged >/dev/null
else
	skip "both monitors" "the trimmed QEMU is not built; make monitor"
fi
is "$(find "$PARBAKE_HOME/cache" -name '.tmp-*')" "" "no litter"
finish
