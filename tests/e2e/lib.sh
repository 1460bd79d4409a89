# SPDX-License-Identifier: Apache-2.0
# What the end-to-end tests share: one PARBAKE_HOME for all of them, so that templates are baked
# once and stages come from the cache, and the kernel.
# shellcheck shell=bash
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

export PARBAKE_HOME=${PARBAKE_TEST_HOME:-$top/build/e2e-home}
recipes=$top/tests/e2e/templates

# bake NAME: a template that a test needs, up to date; the test ends here where that fails
bake() {
	if ! timeout 1200 "$parbake" bake "$1" >"$scratch/bake.out" 2>"$scratch/bake.err"; then
		ok "bake $1" false
		tail -n 20 "$scratch/bake.err" | sed 's/^/# /'
		finish
	fi
}

# own_run: from here on a run directory of this test's own, with the templates that were baked: another test's daemon
# or pager is neither seen nor ended
own_run() {
	mkdir -m 700 "$scratch/home"
	ln -s "$PARBAKE_HOME/store" "$PARBAKE_HOME/cache" "$scratch/home/"
	export PARBAKE_HOME=$scratch/home
}

# alive PID: it runs; a zombie that nobody has reaped yet does not
alive() { [ -e "/proc/$1/status" ] && ! grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null; }
gone() { ! alive "$1"; }

# monitors PID: the monitors' processes whose parent is PID
monitors() { pgrep -P "$1" 'qemu|parbake-vmm' 2>/dev/null; }

# like_tiny NAME SED: the recipe of tiny under another name, changed by SED
like_tiny() { sed "s/^name = tiny/name = $1/; s|= motd.txt|= $recipes/motd.txt|; $2" "$recipes/tiny.ini"; }

# maps_translations TEMPLATE: does the monitor of a sandbox map kept translations?
maps_translations() {
	local pid mon found=1
	"$parbake" run "$1" -- cat </dev/zero >/dev/null 2>&1 &
	pid=$!
	await 60 monitors "$pid" >/dev/null && mon=$(monitors "$pid" | head -n 1)
	# shellcheck disable=SC2317 # called by await
	up() { [ "$(tr '\0' ' ' <"/proc/$mon/cmdline" 2>/dev/null | cut -c1-4)" != "" ] && grep -q 'memfd:' "/proc/$mon/maps"; }
	await 60 up
	grep -q "$PARBAKE_HOME/cache/translations/" "/proc/$mon/maps" && found=0
	kill -KILL "$pid"
	wait "$pid" 2>/dev/null
	return $found
}
