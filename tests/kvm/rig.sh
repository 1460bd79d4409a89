#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The KVM rig: a KVM host on a machine that has no KVM. QEMU emulates (TCG) an AMD machine with
# nested virtualisation, which runs Debian's cloud kernel with kvm-amd; in it, parbake bakes and
# restores the small template with accel=kvm and userfaultfd, with each of its monitors, and says how many times as
# long the others take as parbake-vmm does (tests/kvm/rig-init). What it needs comes in one initramfs made of this
# host's own files. RIG names the parts that are run, each in an emulated host of its own; RIG=all measures, too.
. "$(dirname "$0")/../e2e/lib.sh"

work=$scratch/rig
cache=${XDG_CACHE_HOME:-$HOME/.cache}/parbake/rig
mkdir -p "$work"/{bin,dev,proc,sys,tmp,run,etc,root,modules,parbake} "$cache"

# the kernel and its modules: downloaded once, kept by version
package=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | awk '/Depends: linux-image/ { print $2; exit }')
if [ -z "$package" ]; then
	skip "the KVM rig" "apt knows no cloud kernel; run apt-get update"
	finish
fi
version=$(apt-cache show "$package" | awk '/^Version:/ { print $2; exit }')
kernel=$cache/$package-${version//[^A-Za-z0-9.+-]/_}
if [ ! -e "$kernel/vmlinuz" ]; then
	(cd "$scratch" && apt-get download -q "$package" >apt.log 2>&1) || {
		skip "the KVM rig" "$package cannot be downloaded"
		finish
	}
	mkdir -p "$kernel.tmp" && dpkg-deb -x "$scratch/$package"_*.deb "$scratch/deb"
	cp "$scratch"/deb/boot/vmlinuz-* "$kernel.tmp/vmlinuz"
	for m in virt/lib/irqbypass arch/x86/kvm/kvm arch/x86/kvm/kvm-amd; do
		cp "$scratch"/deb/lib/modules/*/kernel/$m.ko "$kernel.tmp/"
	done
	rm -rf "$kernel" "$scratch/deb" && mv "$kernel.tmp" "$kernel"
fi

bake "$recipes/tiny.ini" # so that its source stage is in the cache

# copy FILE… with the libraries that they load
with_libraries() {
	local f lib
	for f; do
		f=$(readlink -f "$f")
		install -D "$f" "$work/$f"
		for lib in $(ldd "$f" 2>/dev/null | grep -oE '/[^ ]+' | sort -u); do
			[ -e "$work/$lib" ] || install -D "$(readlink -f "$lib")" "$work/$lib"
		done
	done
}
with_libraries "$(command -v qemu-system-x86_64)" "$parbake"
with_libraries "$top"/build/libparbake-uffd.so
# modules that QEMU loads itself, and the firmware of its microvm machine
for f in /usr/lib/x86_64-linux-gnu/qemu/accel-*.so; do [ -e "$f" ] && with_libraries "$f"; done
for f in bios-microvm.bin qboot.rom linuxboot_dma.bin pvh.bin; do
	for d in /usr/share/qemu /usr/share/seabios /usr/lib/qemu; do
		[ -e "$d/$f" ] && install -D -m 644 "$(readlink -f "$d/$f")" "$work/usr/share/qemu/$f"
	done
done
install -D "$parbake" "$work/parbake/parbake"
mkdir -p "$work/parbake/build"
cp "$top"/build/libparbake-uffd.so "$top"/build/initramfs.cpio "$top"/build/parbake-vmm "$work/parbake/build/"
if [ -e "$top/build/parbake-qemu" ]; then # then it is the one that is preferred
	cp -L "$top/build/parbake-qemu" "$work/parbake/build/parbake-qemu"
	cp -L "$(dirname "$(readlink -f "$top/build/parbake-qemu")")/qboot.rom" "$work/parbake/build/"
fi
cp -L "$top/build/vmlinux" "$work/parbake/build/vmlinux"
cp -r "$recipes" "$work/parbake/recipes"
printf '[template]\nname = many\nfrom = tiny\n[machine]\nvcpus = 4\n' >"$work/parbake/recipes/many.ini"
# the source stage alone: the disk is made anew there, and must come out the same
mkdir -p -m 700 "$work/home/cache/stages" "$work/home/cache/verified"
source=$("$parbake" inspect tiny --config | python3 -c 'import json,sys; print(json.load(sys.stdin)["extra"]["source_key"][7:])')
cp "$PARBAKE_HOME/cache/stages/source-$source".* "$work/home/cache/stages/"
cp "$PARBAKE_HOME/cache/verified/stages-source-$source".* "$work/home/cache/verified/"
"$parbake" inspect tiny --config | python3 -c 'import json,sys; print(json.load(sys.stdin)["disk_raw_digest"])' \
	>"$work/parbake/disk-digest"
cp "$kernel"/*.ko "$work/modules/"
cp /bin/busybox "$work/bin/busybox"
for tool in sh mount insmod mknod cat ls grep sed awk sleep kill poweroff mkdir head tail cut date env \
	sort uniq wc tr timeout seq test ps id dmesg cmp xargs cp; do ln -sf busybox "$work/bin/$tool"; done
cp "$top/tests/kvm/rig-init" "$work/init"
chmod +x "$work/init"
(cd "$work" && find . | cpio -o -H newc --quiet >"$scratch/rig.cpio")

# start PART: an emulated host, to its end. 1: its kernel stood still or fell
start() {
	local lines was=-1 still=0 alive beat=-1 dead=0
	timeout 1200 qemu-system-x86_64 -M q35,sata=off,smbus=off -accel tcg,thread=multi -cpu max -smp 2 -m 4096 \
		-nodefaults -no-user-config -display none -no-reboot -kernel "$kernel/vmlinuz" \
		-initrd "$scratch/rig.cpio" -append "console=ttyS0 quiet panic=-1 nokaslr mitigations=off rig=$1" \
		-serial stdio -monitor none </dev/null >"$scratch/rig.log" 2>&1 &
	while kill -0 $! 2>/dev/null; do
		sleep 1
		lines=$(grep -avc 'RIG alive\|INFO: task .* blocked\|tainted\|hung_task' "$scratch/rig.log")
		still=$((lines == was ? still + 1 : 0))
		was=$lines
		alive=$(wc -c <"$scratch/rig.log")
		dead=$((alive == beat ? dead + 1 : 0))
		beat=$alive
		if [ $still -gt 300 ] || [ $dead -gt 120 ]; then
			kill $!
			wait $!
			why="got nowhere for five minutes"
			[ $dead -le 120 ] || why="said nothing for two minutes, where it says that it is alive every five seconds"
			return 1
		fi
	done
	wait $!
	why="a panic of its kernel"
	! grep -aq 'Kernel panic' "$scratch/rig.log"
}

# An emulated host loses its timers now and then, while it runs a nested machine: then one of its processors or both do
# nothing any more, and what waits for them waits for ever, though its "alive" may still come every five seconds. Seldom
# its kernel finds its own stack destroyed. No program can do that to it, so nothing is learnt from either, and
# the part is started again; whatever it answers in the end counts.
for part in ${RIG:-kvm qemu}; do
	for try in 1 2 3 4 5 6; do
		start "$part" && break
		echo "# $part, try $try: the emulated host: $why, after: $(grep -a '^RIG' "$scratch/rig.log" | grep -av alive | tail -n 1 | tr -d '\r')"
	done
	tr -d '\r' <"$scratch/rig.log" | sed -n 's/^RIG //p' | grep -vx alive >"$scratch/results"
	grep '^#' "$scratch/results"
	bad_before=$tap_bad
	while read -r verdict name; do
		tap_n=$((tap_n + 1))
		if [ "$verdict" = ok ]; then
			echo "ok $tap_n - in the rig, $part: $name"
		else
			echo "not ok $tap_n - in the rig, $part: $name"
			tap_bad=$((tap_bad + 1))
		fi
	done < <(grep -v '^#' "$scratch/results")
	is "$(grep -c '^ok the rig is done' "$scratch/results")" 1 "the rig, $part, ran to its end"
	[ "$tap_bad" = "$bad_before" ] || tail -n 60 "$scratch/rig.log" | tr -d '\r' | sed 's/^/# /'
done
finish
