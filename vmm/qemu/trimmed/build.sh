#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the trimmed QEMU and prints the path of its program, the only line on
# standard output; all else goes to standard error.
#
#   build.sh               build, or find in the cache
#   build.sh --print-path  print where it is or would be; build nothing
#
# How it works: Debian's source package of QEMU is fetched by apt, with entries
# made from the host's own configuration but kept apart from it, and unpacked
# into the cache directory; patches/ are applied; it is configured with nothing
# but what devices.mak and the options below name, compiled, linked statically
# together with ../preload_uffd.c and startup.c, tried, stripped and published,
# beside the boot ROM from the same source, by renaming a finished directory.
#
# What always holds:
# - $CACHE/monitor/<digest>/ exists only whole. <digest> covers everything that
#   decides the bytes: source version, this script, devices.mak, patches, what is
#   linked in, compiler, linker and the static libraries. The program's version
#   names it, and so does each snapshot made with it.
# - One build at a time per cache, by flock. The lock lives as long as any
#   process of a build, so whoever gets it may remove what a killed one left.
# - Same digest, same bytes: time, user, host and paths are not in the file.
set -euo pipefail
export LC_ALL=C TZ=UTC SOURCE_DATE_EPOCH=0
umask 022
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES NINJA_STATUS
unset CC CXX CFLAGS CXXFLAGS CPPFLAGS LDFLAGS AR LD NM OBJCOPY STRIP PKG_CONFIG PKG_CONFIG_PATH

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${PARBAKE_MONITOR_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set; set PARBAKE_MONITOR_CACHE}/.cache}/parbake}/monitor
label=monitor
# shellcheck source=../../../common/cached-build.sh
. "$here/../../../common/cached-build.sh"
own=("$here/../preload_uffd.c" "$here/startup.c") # linked in
added=("$here"/translations{,_save}.c "$here"/translations{,_image}.h) # to accel/tcg/ of the source
wrapped=(mmap mmap64 open open64) # by the first of them
package=qemu-system-x86 # what the distribution calls its own build

# Debian packages whose static libraries are linked in
libraries='libglib2.0-dev libpcre2-dev libpixman-1-dev libseccomp-dev zlib1g-dev libfdt-dev libc6-dev'

configure_options=(
	--target-list=x86_64-softmmu --static --disable-pie
	--without-default-features --without-default-devices --with-devices-x86_64=parbake
	--enable-tcg --enable-kvm --enable-seccomp --enable-coroutine-pool
	--disable-user --disable-tools --disable-docs --disable-install-blobs
	--disable-debug-info --audio-drv-list=
	# its files are looked for beside the program, wherever that lies
	--prefix=/parbake --bindir=/parbake --firmwarepath=/parbake
)

need_tools() {
	need gcc ld make ninja meson python3 pkg-config tar xz patch flock readelf strip objcopy apt-get dpkg-source
}

# ---- the source ---------------------------------------------------------------

# A version as part of a file's name.
plain() { printf '%s' "${1//[^A-Za-z0-9.+~-]/_}"; }

# Sets source_version: that of the distribution's own QEMU, where it is
# installed, or what was found to be in the archive in its stead.
find_version() {
	local wanted
	command -v dpkg-query >/dev/null ||
		die "this needs Debian's source package; elsewhere parbake uses the QEMU in PATH"
	wanted=$(dpkg-query -W -f '${db:Status-Status} ${source:Version}\n' "$package" 2>/dev/null |
		sed -n 's/^installed //p') || true
	instead=$cache/version-$(plain "${wanted:-any}")
	if [ -s "$instead" ]; then
		source_version=$(cat "$instead")
	else
		source_version=$wanted
	fi
}

# The host's apt entries of its own release, as entries for source packages. Not
# backports: another QEMU, which patches/ are not for.
write_entries() {
	local codename list parts file
	codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME-}")
	eval "$(apt-config shell list Dir::Etc::sourcelist/f parts Dir::Etc::sourceparts/d)"
	mkdir -p "$1/parts"
	for file in "$list" "$parts"/*.list; do
		[ ! -r "$file" ] || cat "$file"
	done | awk -v codename="$codename" '
		$1 != "deb" && $1 != "deb-src" { next }
		{
			suite = $0
			sub(/^[ \t]*deb(-src)?[ \t]+(\[[^]]*\][ \t]+)?[^ \t]+[ \t]+/, "", suite)
			if (suite ~ "^(" codename "|(old)*stable|testing|unstable|sid)([-/ \t]|$)" && suite !~ /^[^ \t]*-backports/)
				print "deb-src" substr($0, index($0, $1) + length($1))
		}' | sort -u >"$1/parts/lines.list"
	for file in "$parts"/*.sources; do
		[ ! -r "$file" ] || { cat "$file"; echo; }
	done | awk -v RS= -v codename="$codename" '
		{
			gsub(/\n#[^\n]*/, "")
			gsub(/[^ \t\n:]*-backports[^ \t\n]*/, "")
			if (("\n" tolower($0)) !~ "\nsuites:[^:]*[ \t\n](" codename "|(old)*stable|testing|unstable|sid)([-/ \t\n]|$)")
				next
			print "Types: deb-src"
			n = split($0, line, "\n")
			for (i = 1; i <= n; i++)
				if (tolower(line[i]) !~ /^types:/)
					print line[i]
			print ""
		}' >"$1/parts/stanzas.sources"
	[ -s "$1/parts/lines.list" ] || [ -s "$1/parts/stanzas.sources" ] ||
		die "apt on this host has no entries for $codename to take the source from"
}

source_apt() {
	local dir=$1 tool=$2
	shift 2
	"$tool" -q -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$dir/parts" \
		-o Dir::State::lists="$dir/lists" -o Dir::Cache="$dir/cache" \
		-o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::Retries=3 "$@"
}

# Leaves the package's files in $cache/source-<version>/, as apt has verified them.
fetch_source() {
	local dir=$cache/fetch have
	rm -rf "$dir"
	mkdir -p "$dir"/lists/partial "$dir"/cache/archives/partial "$dir/files"
	write_entries "$dir"
	say "fetching the source package of QEMU ${source_version:-}"
	source_apt "$dir" apt-get update </dev/null >>"$log" 2>&1 || true
	have=$(source_apt "$dir" apt-cache showsrc --only-source qemu 2>>"$log" |
		sed -n 's/^Version: //p' | sort -rV)
	[ -n "$have" ] || die "apt finds no source package qemu; what it said is in $log"
	if ! grep -qxF -- "$source_version" <<<"$have"; then
		[ -z "$source_version" ] ||
			say "the archive has no qemu $source_version; taking ${have%%$'\n'*}"
		source_version=${have%%$'\n'*}
		printf '%s\n' "$source_version" >"$instead.tmp"
		mv "$instead.tmp" "$instead"
	fi
	(cd "$dir/files" && source_apt "$dir" apt-get source --download-only \
		"qemu=$source_version" </dev/null >>"$log" 2>&1) ||
		die "the source of qemu $source_version could not be fetched"
	rm -rf "$cache"/source-*
	mv -T "$dir/files" "$cache/source-$(plain "$source_version")"
	rm -rf "$dir"
}

compute_digest() {
	local p
	{
		printf 'qemu %s\n' "$source_version"
		sha256sum <"$here/build.sh"
		sha256sum <"$here/devices.mak"
		for p in "$here"/patches/*.patch; do
			[ ! -e "$p" ] || sha256sum <"$p"
		done
		cat "${own[@]}" "${added[@]}" | sha256sum
		gcc --version | head -n 1
		ld --version | head -n 1
		# shellcheck disable=SC2086 # a list of words
		dpkg-query -W -f '${Package} ${Version}\n' $libraries 2>/dev/null | sort || true
	} | sha256sum | cut -d ' ' -f 1
}

# ---- the build ----------------------------------------------------------------

unpack_source() {
	local p dsc
	mkdir "$work"
	dsc=$(echo "$cache/source-$(plain "$source_version")"/*.dsc)
	# its signature is apt's affair; the digests in it are checked here again
	dpkg-source --no-check -x "$dsc" "$work/src" >>"$log" 2>&1
	cd "$work/src"
	for p in "$here"/patches/*.patch; do
		[ ! -e "$p" ] || patch -p1 -s --fuzz=0 <"$p" >>"$log" 2>&1 ||
			die "${p##*/} does not apply to qemu $source_version"
	done
	cp "${added[@]}" accel/tcg/
	cp "$here/devices.mak" configs/devices/x86_64-softmmu/parbake.mak
}

progress_of() {
	case $1 in
	'['*/*']'*) step=${1%%]*} step=${step#[} step=${step/\// of } ;;
	esac
}

compile() {
	local flags="-ffile-prefix-map=$work/=" wraps=("${wrapped[@]/#/-Wl,--wrap=}")
	mkdir "$work/out"
	cd "$work/out"
	gcc -std=gnu11 -O2 -Wall -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DPARBAKE_UFFD_WRAP -fno-pie \
		"$flags" -c "${own[@]}" >>"$log" 2>&1
	../src/configure "${configure_options[@]}" \
		--with-pkgversion="parbake-${digest:0:12}, Debian $source_version" \
		--extra-cflags="$flags" \
		--extra-ldflags="-no-pie ${wraps[*]} $work/out/preload_uffd.o $work/out/startup.o" >>"$log" 2>&1
	ninja qemu-system-x86_64 2>&1 | show_progress
	meson setup ../src/roms/qboot qboot >>"$log" 2>&1
	ninja -C qboot >>"$log" 2>&1
}

# Does what comes in hold the pattern? Reads all of it: who writes must not fail.
has() { grep -- "$1" >/dev/null; }

# What parbake relies on, found out by asking the program.
try_program() {
	local program=$1 word
	"$program" --version | has "(parbake-${digest:0:12}, " ||
		die "the program does not name its build"
	! readelf -lW "$program" | has INTERP || die "the program is not static"
	for word in mmap open; do
		readelf -sW "$program" | has " __wrap_${word}64\$" ||
			die "the wrapper of $word is not linked in"
	done
	"$program" -machine help | has '^microvm ' || die "the program has no microvm"
	for word in virtio-blk-device virtio-serial-device virtserialport virtio-rng-device \
	    virtio-net-device; do
		"$program" -machine microvm -device help | has "\"$word\"" ||
			die "the program has no $word"
	done
	grep -aq x-save-translations "$program" || die "the program keeps no translations"
	"$program" -help | has '^-sandbox on' || die "the program has no -sandbox"
	for word in tcg kvm; do
		"$program" -accel help | has "^$word\$" || die "the program has no $word"
	done
}

publish() {
	mkdir "$fresh"
	try_program "$work/out/qemu-system-x86_64"
	strip --strip-all -o "$fresh/parbake-qemu" "$work/out/qemu-system-x86_64"
	cp "$work/out/qboot/bios.bin" "$fresh/qboot.rom"
	chmod 0644 "$fresh/qboot.rom"
	chmod 0755 "$fresh/parbake-qemu"
	publish_as "$digest"
}

build() {
	[ -n "$source_version" ] && [ -d "$cache/source-$(plain "$source_version")" ] || fetch_source
	digest=$(compute_digest) # the archive may have had another version
	path=$cache/$digest/parbake-qemu
	[ ! -x "$path" ] || return 0
	say "unpacking qemu $source_version"
	run_group unpack_source
	run_group compile
	publish
	say "built in $SECONDS s: $(stat -c %s "$path") bytes"
}

main() {
	local mode=build
	case ${1-} in
	'') ;;
	--print-path) mode=print ;;
	-h | --help) sed -n '3,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
	*) say "unknown argument '$1'; try --help"; exit 2 ;;
	esac
	command -v gcc >/dev/null && command -v ld >/dev/null || need_tools
	find_version
	digest=$(compute_digest)
	path=$cache/$digest/parbake-qemu
	if [ "$mode" = print ] || [ -x "$path" ]; then
		printf '%s\n' "$path"
		return
	fi
	need_tools
	build_once "$path" build
	printf '%s\n' "$path"
}

main "$@"
