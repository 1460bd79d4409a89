# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# What the builds of the guest kernel and of the trimmed QEMU share: a directory $cache in which each finished build
# has one of its own, whole, named by the digest of all that decides its bytes. Nothing here decides any.
#
# Sourced, with these set: label (in front of what is said), cache; and defined: progress_of LINE, which sets step to
# what is to be shown after a line of the compiler's output.

log=$cache/build.log
work=$cache/build # of the build under way
fresh=$cache/.new # what will be named by the digest
# $cache/fetch is for what is being downloaded
progress_seconds=15
tail_lines=30
group= step=

say() { printf '%s: %s\n' "$label" "$*" >&2; }

die() { say "$*"; exit 1; }

need() { # PROGRAM…
	local tool missing=
	for tool; do
		command -v "$tool" >/dev/null || missing+=" $tool"
	done
	[ -z "$missing" ] || die "missing:$missing; 'make setup' installs what the build needs"
}

# Copies what comes in to the log and says how far it is: one line, rewritten, on a terminal; elsewhere a line now
# and then.
show_progress() {
	local line rc now last=0 start=$SECONDS text
	while :; do
		rc=0
		IFS= read -r -t 1 line || rc=$?
		printf '%s' "$line"
		if [ "$rc" = 0 ]; then
			printf '\n'
			progress_of "$line"
		elif [ "$rc" -le 128 ]; then
			break
		fi
		now=$((SECONDS - start))
		[ "$now" != "$last" ] && [ -n "$step" ] || continue
		printf -v text 'compiling: %s, %d:%02d' "$step" $((now / 60)) $((now % 60))
		if [ -t 2 ]; then
			printf '\r%s: %s\033[K' "$label" "$text" >&2
			last=$now
		elif [ $((now - last)) -ge "$progress_seconds" ]; then
			say "$text"
			last=$now
		fi
	done
	[ ! -t 2 ] || printf '\r\033[K' >&2
} >>"$log"

# Runs a function in a process group of its own, so that ending the build
# takes all its compilers along, at once.
run_group() {
	set -m
	"$@" &
	group=$!
	set +m
	wait "$group"
	group=
}

# What lies in $fresh is whole: name it $cache/DIGEST.
publish_as() {
	sync "$fresh"/* "$fresh"
	mv -T "$fresh" "$cache/$1"
	sync "$cache"
}

clear_build() { rm -rf "$work" "$fresh" "$cache/fetch"; }

on_exit() {
	local rc=$?
	trap - EXIT INT TERM HUP
	if [ -n "$group" ]; then
		kill -TERM -- "-$group" 2>/dev/null || true
		wait "$group" 2>/dev/null || true
	fi
	if [ "$rc" != 0 ]; then
		if [ "$rc" -lt 128 ] && [ -s "$log" ]; then
			say "failed; the last lines of $log:"
			tail -n "$tail_lines" "$log" >&2
		fi
		clear_build
	fi
	exit "$rc"
}

# Run COMMAND, which makes PATH, unless another has made it meanwhile. One build at a time, by flock: the lock
# lives as long as any process of a build, so whoever gets it may remove what a killed one left.
build_once() { # PATH COMMAND…
	(umask 077 && mkdir -p "$cache")
	exec 9>"$cache/lock"
	if ! flock -n 9; then
		say "another build is running, waiting for it"
		flock 9
	fi
	[ ! -f "$1" ] || return 0
	trap on_exit EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	clear_build
	rm -f "$log"
	"${@:2}"
	rm -rf "$work" "$log"
	trap - EXIT INT TERM HUP
}
