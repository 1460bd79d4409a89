#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the guest kernel and prints the path of its vmlinux, the only line on
# standard output; all else goes to standard error.
#
#   build.sh               build, or find in the cache
#   build.sh --print-path  print where it is or would be; build nothing
#
# How it works: Debian's linux-source package is unpacked into the cache
# directory, without what this configuration cannot reach, and patches/ are
# applied; allnoconfig plus config settle the configuration, each line of
# config is checked to have survived; vmlinux is compiled, stripped, checked
# for its PVH entry note and published by renaming a finished directory.
#
# What always holds:
# - $CACHE/kernel/<digest>/ exists only whole. <digest> covers everything that
#   decides the bytes: config, patches, this script, source version, compiler, linker.
# - One build at a time per cache, by flock. The lock lives as long as any
#   process of a build, so whoever gets it may remove what a killed one left.
# - Same digest, same bytes: time, user, host and paths are not in the file.
set -euo pipefail
export LC_ALL=C TZ=UTC
umask 022
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES ARCH CROSS_COMPILE O KBUILD_OUTPUT
unset KCFLAGS KCPPFLAGS KAFLAGS KBUILD_BUILD_VERSION LOCALVERSION CC LD HOSTCC HOSTCFLAGS

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${PARBAKE_KERNEL_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set; set PARBAKE_KERNEL_CACHE}/.cache}/parbake}/kernel
label=kernel
# shellcheck source=../common/cached-build.sh
. "$here/../common/cached-build.sh"
# nothing that is built here depends on when; a date that means "fixed" to the reader
build_date='1970-01-01 00:00:00 UTC'
files=0

# Sets source_version, source_tar and source_name from the newest linux-source-N installed.
find_source() {
	local package
	package=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' 'linux-source-*' 2>/dev/null |
		sed -n 's/^installed \(linux-source-[0-9.]*\)$/\1/p' | sort -V | tail -n 1) || true
	[ -n "$package" ] ||
		die "no kernel source: install it with 'apt-get install linux-source'"
	source_name=$package
	source_version=$(dpkg-query -W -f '${Version}' "$package")
	source_tar=/usr/src/$package.tar.xz
	[ -r "$source_tar" ] ||
		die "$source_tar: not there, though $package is installed; reinstall it"
}

need_tools() { need gcc ld make flex bison bc tar xz patch flock readelf strip; }

compute_digest() {
	{
		sha256sum <"$here/config"
		sha256sum <"$here/build.sh"
		cat "$here"/patches/*.patch | sha256sum
		printf '%s %s\n' "$source_name" "$source_version"
		gcc --version | head -n 1
		ld --version | head -n 1
	} | sha256sum | cut -d ' ' -f 1
}

# Kconfig and make read every directory's Kconfig and Makefile, so those stay
# everywhere; sources go where this configuration has nothing to compile.
unpack_source() {
	local dir excludes=()
	for dir in drivers/{gpu,media,infiniband,staging,scsi,usb,iio,hwmon,pinctrl,mtd,clk} \
	    drivers/net/{ethernet,wireless,can,wan,dsa,phy,usb,hamradio} sound; do
		excludes+=(--exclude="$source_name/$dir/*.[chS]")
	done
	for dir in alpha arc arm arm64 csky hexagon ia64 loongarch m68k microblaze mips \
	    nios2 openrisc parisc powerpc riscv s390 sh sparc xtensa; do
		excludes+=(--exclude="$source_name/arch/$dir/*.[chS]"
			--exclude="$source_name/arch/$dir/*.dts*")
	done
	mkdir "$work"
	tar -xJf "$source_tar" -C "$work" --strip-components=1 --no-same-owner \
		--exclude="$source_name/Documentation/*/*" \
		--exclude="$source_name/tools/testing/*" \
		--exclude="$source_name/tools/perf/*" \
		--exclude="$source_name/samples/*/*.[chS]" \
		"${excludes[@]}"
}

# Every CONFIG_ line of the fragment must be what kbuild settled on: an
# option whose dependency is missing vanishes without a word otherwise.
check_config() {
	local line name bad=0
	while IFS= read -r line; do
		case $line in
		'# CONFIG_'*' is not set')
			name=${line#\# } name=${name%% *}
			! grep -q "^$name=" .config ||
				{ say "config asks for '$line', kbuild made it" \
					"'$(grep "^$name=" .config)'"; bad=1; }
			;;
		CONFIG_*=*)
			name=${line%%=*}
			grep -qxF -- "$line" .config ||
				{ say "config asks for '$line', kbuild dropped it:" \
					"'$(grep -E "^(# )?$name[ =]" .config || echo "$name unknown")'"
				bad=1; }
			;;
		'# CONFIG_'* | CONFIG_* | [!#]*)
			say "config: cannot read '$line'"; bad=1
			;;
		esac
	done <"$here/config"
	[ "$bad" = 0 ]
}

kmake() {
	make ARCH=x86_64 -j"$(nproc)" KBUILD_BUILD_TIMESTAMP="$build_date" \
		KBUILD_BUILD_USER=parbake KBUILD_BUILD_HOST=parbake \
		KBUILD_BUILD_VERSION=1 LOCALVERSION= "$@"
}

progress_of() {
	case $1 in
	'  CC '* | '  AS '*) files=$((files + 1)) step="$files files" ;;
	esac
}

compile() {
	local patch
	cd "$work"
	for patch in "$here"/patches/*.patch; do
		patch -p1 -s --fuzz=0 <"$patch" >>"$log" 2>&1 ||
			die "${patch##*/} does not apply to $source_name $source_version"
	done
	kmake KCONFIG_ALLCONFIG="$here/config" allnoconfig >>"$log" 2>&1
	check_config
	kmake vmlinux 2>&1 | show_progress
}

# The entry by which a monitor starts an uncompressed kernel: ELF note 18 of owner Xen.
check_pvh() {
	readelf -nW "$1" 2>/dev/null | grep -q 'Xen.*0x0*12' ||
		die "the built vmlinux has no PVH entry note"
}

publish() {
	mkdir "$fresh"
	strip --strip-all -o "$fresh/vmlinux" "$work/vmlinux"
	check_pvh "$fresh/vmlinux"
	cp "$work/.config" "$fresh/config"
	cp "$work/System.map" "$fresh/System.map"
	chmod 0644 "$fresh"/*
	publish_as "$digest"
}

build() {
	say "unpacking $source_name $source_version"
	run_group unpack_source
	run_group compile
	publish
	say "built in $SECONDS s: $(stat -c %s "$cache/$digest/vmlinux") bytes"
}

main() {
	local mode=build
	case ${1-} in
	'') ;;
	--print-path) mode=print ;;
	-h | --help) sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
	*) say "unknown argument '$1'; try --help"; exit 2 ;;
	esac
	find_source
	command -v gcc >/dev/null && command -v ld >/dev/null || need_tools
	digest=$(compute_digest)
	local path=$cache/$digest/vmlinux
	if [ "$mode" = print ] || [ -f "$path" ]; then
		printf '%s\n' "$path"
		return
	fi
	need_tools
	build_once "$path" build
	printf '%s\n' "$path"
}

main "$@"
