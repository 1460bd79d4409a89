#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Install from Debian, by name, what parbake is built from, runs with and is tested by.
# Quick when nothing is missing; without root it prints the one line to run.
set -eu

packages='
build-essential pkg-config libarchive-dev libext2fs-dev comerr-dev libzstd-dev
libcurl4-openssl-dev libmicrohttpd-dev libinih-dev libjansson-dev libssl-dev libsodium-dev
qemu-system-x86 qemu-utils mmdebstrap e2fsprogs zstd python3 python3-pip python3-venv curl ca-certificates
ipython3 nodejs patch binutils
linux-source bc bison flex libelf-dev xz-utils cpio kmod
dpkg-dev meson ninja-build libglib2.0-dev libpixman-1-dev libseccomp-dev libfdt-dev zlib1g-dev
busybox-static chromium-headless-shell fonts-dejavu-core crun
skopeo minisign attr acl libcap2-bin man-db clang clang-format clang-tidy libclang-rt-14-dev procps iproute2
'

# node in whatever edition, from wherever: Debian's where there is none
command -v npm >/dev/null || packages="$packages nodejs npm"

if ! command -v dpkg-query >/dev/null; then
	echo "setup: this is not Debian: install what stands in README.md under \"Without Debian\"" >&2
	exit 1
fi

missing=
for p in $packages; do
	status=$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null || true)
	[ "$status" = installed ] || missing="$missing $p"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ]; then
	echo "setup: run this as root, then again what you ran:" >&2
	echo "  apt-get update && apt-get install -y --no-install-recommends$missing" >&2
	exit 1
fi
echo "setup: installing$missing" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -q </dev/null >&2
# shellcheck disable=SC2086 # a list of words
apt-get install -y -q --no-install-recommends $missing </dev/null >&2
