#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two monitors on one host: each snapshot is restored by the build that made it, whichever of them
# comes first, and by no other.
. "$(dirname "$0")/lib.sh"

if [ ! -x "$top/build/parbake-qemu" ]; then
	skip "two monitors" "the trimmed QEMU is not built; make monitor"
	finish
fi
packaged=$(command -v qemu-system-x86_64)
version() { "$parbake" inspect "$1" --config | sed -n 's/.*"monitor_version": "\(.*\)".*/\1/p'; }
run() { timeout 120 "$parbake" run "$@"; }

bake "$recipes/tiny.ini"
like "$(version tiny)" "^[0-9.]+ \(parbake-[0-9a-f]{12}, Debian " "the trimmed QEMU bakes, and is named with its build"
is "$("$top/build/parbake-qemu" --version | sed -n '1s/^QEMU emulator version //p')" "$(version tiny)" \
	"as it names itself"
is "$(run tiny -- echo first)" first "what it has made runs"
ok "the distribution's QEMU bakes a second version" env PARBAKE_QEMU="$packaged" timeout 600 "$parbake" bake \
	"$recipes/tiny.ini" --tag packaged
is "$(version tiny:packaged)" "$("$packaged" --version | sed -n '1s/^QEMU emulator version //p')" \
	"names the distribution's"
is "$(run tiny:packaged -- echo second)" second "a version of the distribution's QEMU runs, though the trimmed one comes first"
is "$(run tiny -- echo third)" third "a version of the trimmed QEMU runs"

not_ok "PARBAKE_QEMU allows no other" env PARBAKE_QEMU="$packaged" timeout 120 "$parbake" run tiny -- true
like "$(cat "$scratch/err")" "baked with qemu .*parbake-.*but here $packaged is qemu.*(rebake|PARBAKE_QEMU)" \
	"which the error explains, with a way out"
not_ok "a PARBAKE_QEMU that is not there" env PARBAKE_QEMU=/no/such/qemu timeout 120 "$parbake" run tiny -- true
not_ok "a QEMU that is not there bakes nothing" env PARBAKE_QEMU=/no/such/qemu timeout 120 "$parbake" bake "$recipes/tiny.ini"
like "$(cat "$scratch/err")" "PARBAKE_QEMU=/no/such/qemu" "the error names the QEMU that is not there"
"$parbake" doctor >"$scratch/doctor"
like "$(cat "$scratch/doctor")" "good +monitor .*parbake-.*make monitor" "doctor tells which, and why"
like "$(cat "$scratch/doctor")" "other monitor +qemu .*$packaged" "doctor tells of the other monitor"
like "$(PARBAKE_QEMU=$packaged "$parbake" doctor)" "good +monitor .*$packaged.*PARBAKE_QEMU names it" "doctor says who asked for a monitor"

# what an earlier process found out may have been a moment's; doctor tries anew
sed -i 's/"version":"[^"]*"/"version":"1.2.3"/' "$PARBAKE_HOME"/cache/monitor-make-monitor.json
like "$(cat "$PARBAKE_HOME"/cache/monitor-make-monitor.json)" '1\.2\.3' "an answer that is kept and wrong"
unlike "$("$parbake" doctor)" '1\.2\.3' "doctor asks a monitor anew and tells no earlier answer"
unlike "$(cat "$PARBAKE_HOME"/cache/monitor-make-monitor.json)" '1\.2\.3' "an earlier answer that was wrong is not kept"

# without the trimmed one beside it
mkdir "$scratch/lib"
for f in libparbake-uffd.so initramfs.cpio vmlinux; do ln -s "$(readlink -f "$top/build/$f")" "$scratch/lib/$f"; done
like "$(PARBAKE_LIBDIR=$scratch/lib "$parbake" doctor)" "worse +other monitor .*make monitor" "where it is not built, doctor says how"
is "$(PARBAKE_LIBDIR=$scratch/lib run tiny:packaged -- echo fourth)" fourth "the distribution's QEMU does all where there is no trimmed one"
is "$(timeout 60 bash "$top/vmm/qemu/trimmed/build.sh")" "$(bash "$top/vmm/qemu/trimmed/build.sh" --print-path)" "make monitor finds it in its cache"
"$parbake" rm tiny:packaged >/dev/null
finish
