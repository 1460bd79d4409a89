#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# mkinitramfs.sh AGENT OUT: the guest's initramfs, a newc cpio with the agent as /init,
# the directories it mounts on and a console. The bytes depend on the agent's alone: inode
# numbers count up, times and owners are 0. Written by hand because cpio(1) takes them from
# files (and needs root for the node).
set -eu
umask 022

agent=$1 out=$2
tmp=$out.tmp
ino=0
trap 'rm -f "$tmp"' EXIT

# pad LENGTH: zeros up to the next multiple of 4
pad() {
	n=$(((4 - $1 % 4) % 4))
	while [ "$n" -gt 0 ]; do
		printf '\0'
		n=$((n - 1))
	done
}

# entry NAME MODE NLINK SIZE RMAJOR RMINOR: a header and the name
entry() {
	ino=$((ino + 1))
	printf '070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X' \
		"$ino" "$((0$2))" 0 0 "$3" 0 "$4" 0 0 "$5" "$6" "$((${#1} + 1))" 0
	printf '%s\0' "$1"
	pad $((110 + ${#1} + 1))
}

{
	for dir in dev newroot proc run sys etc; do
		entry "$dir" 40755 2 0 0 0
	done
	entry dev/console 20600 1 0 5 1
	entry dev/null 20666 1 0 1 3
	size=$(wc -c <"$agent")
	entry init 100755 1 "$((size))" 0 0
	cat "$agent"
	pad "$size"
	ino=-1
	entry 'TRAILER!!!' 0 1 0 0 0
} >"$tmp"
mv "$tmp" "$out"
