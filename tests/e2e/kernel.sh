#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Boots the guest kernel, emulated, with kernel_init.c as its /init, and
# reports in TAP each thing that program finds working or not.
# The kernel is $PARBAKE_KERNEL, or what kernel/build.sh gives.
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
deadline_seconds=60
# the one kernel/README.md recommends
command_line="console=ttyS0 quiet reboot=t panic=-1 tsc=reliable no_timer_check \
lapic_timer_khz=1000000 rcupdate.rcu_cpu_stall_suppress=1 rcupdate.rcu_expedited=1 \
sysctl.vm.compaction_proactiveness=0"
kernel=${PARBAKE_KERNEL:-$("$here/../../kernel/build.sh")}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/parbake-kernel-test.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

count=0 failed=0
ok() { count=$((count + 1)); echo "ok $count - $1"; }
not_ok() { count=$((count + 1)); failed=$((failed + 1)); echo "not ok $count - $1"; }

prepare() {
	mkdir "$tmp/root" "$tmp/root/dev"
	${CC:-gcc} -std=gnu11 -O2 -Wall -Wextra -Werror -static \
		-o "$tmp/root/init" "$here/kernel_init.c"
	(cd "$tmp/root" && find . -print0 | cpio -0 --quiet -o -H newc -R 0:0) >"$tmp/plain"
	gzip -nc "$tmp/plain" >"$tmp/gzip"
	zstd -qc "$tmp/plain" >"$tmp/zstd"
	truncate -s 8M "$tmp/disk"
	mkfs.ext4 -q -F -O metadata_csum,64bit "$tmp/disk"
}

# boot NAME INITRD CPUS: leaves the guest's report in $tmp/report, its console in $tmp/console.
boot() {
	local rc=0
	rm -f "$tmp/report"
	timeout "$deadline_seconds" qemu-system-x86_64 \
		-M microvm,acpi=off,x-option-roms=off,pit=on,pic=on,rtc=on,isa-serial=on \
		-accel tcg -cpu max -smp "$3" -m 256 -kernel "$kernel" -initrd "$2" \
		-append "$command_line tsc_early_khz=$("$tmp/root/init" --tsc-khz)" \
		-nodefaults -no-user-config -display none -no-reboot \
		-serial "file:$tmp/console" \
		-drive "if=none,id=disk,format=raw,file=$tmp/disk" \
		-device virtio-blk-device,drive=disk \
		-device virtio-rng-device \
		-device virtio-serial-device \
		-chardev "file,id=report,path=$tmp/report" \
		-device virtserialport,chardev=report,name=parbake.test \
		</dev/null >"$tmp/qemu.out" 2>&1 || rc=$?
	if [ "$rc" = 0 ] && grep -qx end "$tmp/report" 2>/dev/null; then
		ok "$1: boots and runs to its end"
		return
	fi
	not_ok "$1: boots and runs to its end (monitor's exit code $rc)"
	tail -n 20 "$tmp/qemu.out" "$tmp/console" 2>/dev/null | sed 's/^/# /'
}

take_report() {
	local word name verdict
	while read -r word name verdict; do
		case $word in
		check) if [ "$verdict" = ok ]; then ok "$name"; else not_ok "$name: $verdict"; fi ;;
		note) echo "# $name $verdict" ;;
		esac
	done <"$tmp/report"
}

prepare
echo "# $kernel: $(stat -c %s "$kernel") bytes"
boot 'plain initramfs, 1 CPU' "$tmp/plain" 1
[ ! -f "$tmp/report" ] || take_report
boot 'gzip initramfs, 2 CPUs' "$tmp/gzip" 2
boot 'zstd initramfs, 8 CPUs' "$tmp/zstd" 8
echo "1..$count"
[ "$failed" = 0 ]
