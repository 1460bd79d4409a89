#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a machine's process may do, seen from outside; and what a guest can make it cost the host.
. "$(dirname "$0")/lib.sh"
bake "$recipes/tiny.ini"

# field PID NAME: a line of its status
field() { sed -n "s/^$2:[[:space:]]*//p" "/proc/$1/status" | tr '\t' ' ' | sed 's/ *$//'; }
# most PID NAME: the hard limit
most() { sed -nE "s/^$2  +[^ ]+ +([^ ]+).*/\1/p" "/proc/$1/limits"; }
up() { # FILE: a sandbox that stays; sets pid and qemu
	"$parbake" run tiny -t 100s --shell "echo up; ${2:-sleep 100}" >"$1" 2>"$1.err" &
	pid=$!
	await 30 grep -q up "$1"
	qemu=$(monitors $pid)
}

ok "a sandbox runs" up "$scratch/a"
a=$pid qa=$qemu
ok "a second machine runs" up "$scratch/b"
b=$pid qb=$qemu
pager=$(for p in $(pgrep -x parbake-pager); do
	[[ $(readlink /proc/$p/fd/*) == *"$PARBAKE_HOME"* ]] && echo "$p"
done)

for q in $qa $qb; do
	is "$(field "$q" NoNewPrivs)" 1 "no new privileges"
	is "$(field "$q" Seccomp)" 2 "seccomp"
	for set in CapInh CapPrm CapEff CapAmb; do
		is "$(field "$q" $set)" 0000000000000000 "$set is empty"
	done
	is "$(readlink /proc/$q/cwd)" / "a confined monitor's directory is the root"
	is "$(most $q 'Max core file size')" 0 "no core"
	is "$(most $q 'Max open files')" 256 "few files"
	is "$(most $q 'Max locked memory')" 65536 "little locked memory"
	ok "score for the kernel's choice of whom to kill" test "$(cat /proc/$q/oom_score_adj)" -ge 500
	is "$(tr '\0' '\n' </proc/$q/environ | sed 's/=.*//' |
		grep -vxE 'PATH|LD_LIBRARY_PATH|QEMU_MODULE_DIR|LC_ALL|LD_PRELOAD|PARBAKE_[A-Z_]+')" "" \
		"no variable that is not its own"
	# its own things (a copy: sealed, of the firmware beside the program), the disk, the overlay, kept translations; no
	# directory, no file elsewhere, no device
	is "$(readlink /proc/$q/fd/* | sed -E -e '\,^(pipe:|socket:|anon_inode:|/memfd:parbake-(memory|copy)|/dev/null$),d' \
		-e "\\,^$PARBAKE_HOME/cache/(disks/[0-9a-f]{64}$|translations/[0-9a-f]{64}$|#[0-9]+ \\(deleted\\)),d")" "" \
		"no descriptor that is not its own"
	is "$(for fd in /proc/$q/fd/*; do case $(readlink "$fd") in */disks/* | */translations/*) echo "$fd" ;; esac; done |
		while read -r fd; do sed -n 's/^flags:.*\([0-9]\)$/\1/p' "/proc/$q/fdinfo/${fd##*/}"; done | sort -u)" 0 \
		"the template's files are open for reading alone"
	ok "at most three sockets: monitor, agent, pager" test "$(readlink /proc/$q/fd/* | grep -c socket:)" -le 3
done

if [ "$(id -u)" = 0 ]; then
	ids() { field "$1" Uid; field "$1" Gid; }
	is "$(field $qa Uid | tr ' ' '\n' | sort -u | wc -l)" 1 "a confined monitor has one user in all places"
	ok "not root, and from the range" test "$(field $qa Uid | cut -d' ' -f1)" -ge $((0x70000000))
	ok "two machines, two users" test "$(ids $qa)" != "$(ids $qb)"
	is "$(field $qa Groups)$(field $qb Groups)" "" "no group"
	is "$(field $qa CapBnd)" 0000000000000000 "no capability to be had"
	for ns in net ipc; do
		ok "$ns namespace" test "$(readlink /proc/$qa/ns/$ns)" != "$(readlink /proc/self/ns/$ns)"
	done
	ok "two machines, two ipc namespaces" test "$(readlink /proc/$qa/ns/ipc)" != "$(readlink /proc/$qb/ns/ipc)"
	is "$(stat -c %u /proc/$qa/fd)" 0 "nobody traces it"
	as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }
	uid=$(field $qa Uid | cut -d' ' -f1)
	ok "a machine's user may signal it" as "$uid" bash -c "kill -0 $qa"
	not_ok "a confined monitor can signal no other machine" as "$uid" bash -c "kill -0 $qb"
	not_ok "a confined monitor cannot look at another's descriptors" as "$uid" bash -c "ls /proc/$qb/fd/"
	not_ok "a confined monitor cannot read another's memory" as "$uid" head -c 1 /proc/$qb/mem
	if [ -n "$pager" ]; then
		is "$(field $pager Seccomp)$(field $pager NoNewPrivs)" 21 "the pager: seccomp"
		is "$(field $pager CapEff)$(field $pager CapBnd)" 00000000000000000000000000000000 "no capability"
		ok "a user of its own" test "$(field $pager Uid)" != "$(field $qa Uid)" -a "$(field $pager Uid | cut -d' ' -f1)" -gt 0
	else
		skip "the pager" "userfaultfd may not be used here"
	fi
	like "$("$parbake" doctor)" "confinement +each machine runs as a user of its own" "doctor says so"
else
	like "$("$parbake" doctor)" "worse +confinement +machines run as you" "doctor says so"
fi

kill -9 $a
wait $a 2>/dev/null
ok "kill -9 of parbake ends its machine" await 2 gone $qa
ok "the other machine lives on" kill -0 $qb
kill $b
wait $b 2>/dev/null

# a guest that fills its disk: an error in the guest, a bound on the host
ok "a guest fills its disk" up "$scratch/c" \
	'cat /dev/zero >/fill 2>/fill.err; df -P / | tail -n 1; echo full; sleep 100'
ok "a guest finds its disk full" await 90 grep -q full "$scratch/c"
overlay=$(for f in /proc/$qemu/fd/*; do
	[[ $(readlink "$f") == *'(deleted)' && $(readlink "$f") == *cache/* ]] && stat -Lc %s "$f"
done | sort -n | tail -n 1)
echo "# the overlay has ${overlay:-no} bytes: $(tail -n 2 "$scratch/c" | head -n 1)"
disk=$("$parbake" inspect tiny --config | python3 -c 'import json,sys; print(json.load(sys.stdin)["disk_bytes"])')
ok "the overlay is no longer than the disk and its tables" test "${overlay:-0}" -gt $((disk / 4)) -a \
	"${overlay:-0}" -le $((disk + disk / 64))
is "$(most $qemu 'Max file size')" $((disk + disk / 64 + (64 << 20))) "the largest file of a monitor is bounded by its disk"
kill $pid
wait $pid 2>/dev/null

# another path than everybody may walk, and a umask that lets nobody read
(
	umask 077
	mkdir -p "$scratch/private/build"
	cp "$parbake" "$scratch/private/"
	cp "$top/build/libparbake-uffd.so" "$top/build/initramfs.cpio" "$scratch/private/build/"
	cp -L "$top/build/vmlinux" "$scratch/private/build/vmlinux"
	if [ -e "$top/build/parbake-qemu" ]; then # tiny is its
		monitor=$(readlink -f "$top/build/parbake-qemu")
		cp "$monitor" "${monitor%/*}/qboot.rom" "$scratch/private/build/"
	fi
	chmod 700 "$scratch/private" "$scratch/private/build/"*
	# a program must be for its user to start, wherever it lies
	[ ! -e "$scratch/private/build/parbake-qemu" ] || chmod 755 "$scratch/private/build/parbake-qemu"
)
is "$(timeout 60 "$scratch/private/parbake" run tiny -- echo hidden)" hidden "from a directory of mode 0700"
is "$(PARBAKE_CONFINE=off timeout 60 "$parbake" run tiny -- echo off)" off "PARBAKE_CONFINE=off"
finish
