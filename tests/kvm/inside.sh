#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# PID 1 of the KVM rig: an emulated host with /dev/kvm. Results go to the console as
# "RIG ok NAME" and "RIG not-ok NAME".
export PATH=/usr/bin:/bin PARBAKE_HOME=/home PARBAKE_ACCEL=kvm HOME=/root LC_ALL=C
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
for m in irqbypass kvm kvm-amd; do insmod /modules/$m.ko; done

say() { echo "RIG $*"; }
check() { # NAME COMMAND…
	name=$1
	shift
	if "$@" >/tmp/out 2>/tmp/err; then
		say "ok $name"
	else
		say "not-ok $name (status $?)"
		tail -n 20 /tmp/out /tmp/err
	fi
}
is() { # NAME GOT WANT
	if [ "$2" = "$3" ]; then say "ok $1"; else say "not-ok $1: got \"$2\", want \"$3\""; fi
}
pb() { timeout 300 /parbake/parbake "$@"; }

check "/dev/kvm is there" test -c /dev/kvm
check "doctor" pb doctor
cp /tmp/out /tmp/doctor
check "doctor finds that kvm works" grep -q 'kvm works' /tmp/doctor
cat /tmp/doctor
check "bake the small template with kvm" pb bake /parbake/recipes/tiny.ini
tail -n 30 /tmp/err
pb inspect tiny --config >/tmp/config
check "it is a kvm snapshot" grep -q '"accel": "kvm"' /tmp/config
check "its root disk is the same as the other host's" grep -q "$(cat /parbake/disk-digest)" /tmp/config
is "a restore runs a command" "$(pb run tiny -- sh -c 'echo $((6*7))')" 42
is "its exit status" "$(pb run tiny -- sh -c 'exit 7'; echo $?)" 7
# faults in kernel mode: KVM's own (the guest touches memory) and read(2) into guest memory (virtio)
is "a megabyte through the channel" "$(head -c 1048576 /dev/zero | pb run tiny --shell 'wc -c')" 1048576
is "the guest reads its disk" "$(pb run tiny --shell 'cat /bin/* /lib/*/*.so* 2>/dev/null | wc -c | grep -c "[0-9]\{6\}"')" 1
a=$(pb run tiny -- cat /proc/sys/kernel/random/uuid /etc/machine-id)
b=$(pb run tiny -- cat /proc/sys/kernel/random/uuid /etc/machine-id)
check "two restores differ" test -n "$a" -a "$a" != "$b"
is "without userfaultfd" "$(PARBAKE_NO_UFFD=1 pb run tiny -- echo private)" private
check "bench create" pb bench create tiny -n 3 --boots 1
sed 's/^/RIG # /' /tmp/out
say "ok the rig is done"
poweroff -f
