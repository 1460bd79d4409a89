#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A host without room for what a sandbox writes to its disk: the guest is told (fsync fails, never says that all is well),
# nothing stands still, and the sandbox says why, to `run` and to who asks the pool, also after the daemon's restart.
if [ "${1-}" != inside ] && [ "$(id -u)" = 0 ]; then
	exec unshare -m bash "$0" inside # mounts of its own
fi
. "$(dirname "$0")/lib.sh"
if [ "$(id -u)" != 0 ]; then
	skip "a full host" "mounting needs root"
	finish
fi
bake "$recipes/tiny.ini"

# a cache of its own, which is where overlays lie, with room for little more than it has once a sandbox has run
mkdir -m 700 "$scratch/home" "$scratch/home/cache"
ln -s "$PARBAKE_HOME/store" "$scratch/home/store"
ok "a small file system" mount -t tmpfs -o size=512m,mode=700 tmpfs "$scratch/home/cache"
export PARBAKE_HOME=$scratch/home
is "$(timeout 120 "$parbake" run tiny -- echo up)" up "a sandbox runs on it"
used=$(df --output=used -k "$PARBAKE_HOME/cache" | tail -n 1)
ok "which is then nearly full" mount -o "remount,size=$((used + 6000))k" "$PARBAKE_HOME/cache"

fill='dd if=/dev/urandom of=/root/big bs=1M count=24 conv=fsync; echo "dd $?"; sync /root/big; echo "sync $?"
dd if=/dev/urandom of=/root/more bs=1M count=4 oflag=direct; echo "direct $?"; cat /etc/tiny/motd'
timeout 120 "$parbake" run tiny -t 100s --shell "$fill" >"$scratch/o" 2>"$scratch/e"
is $? 0 "the sandbox goes on"
like "$(cat "$scratch/o")" '^dd 1$' "fsync of what is not on the disk fails"
like "$(cat "$scratch/o")" '^direct 1$' "a direct write to a full disk fails"
unlike "$(cat "$scratch/o")" '^dd 0$' "nobody is told that it is there"
like "$(cat "$scratch/o")" "$(cat "$recipes/motd.txt")" "what was there before is read"
like "$(cat "$scratch/e")" 'the host has no space left for what the sandbox writes to its disk' "run says that the host has no space left"

# the same in a pool
unset PARBAKE_API_KEY
export PARBAKE_API=unix:$scratch/run/sock
mkdir -m 700 "$scratch/run"
printf '[pool]\nsocket = %s\nstate = %s\n' "$scratch/run/sock" "$scratch/state" >"$scratch/pool.conf"
serve() {
	: >"$scratch/log"
	"$parbake" pool serve --config "$scratch/pool.conf" 2>"$scratch/log" &
	daemon=$!
	await 60 grep -q "the pool answers" "$scratch/log"
}
# shellcheck disable=SC2317 # called by trap
end() {
	"$parbake" kill --all
	kill "$daemon"
	wait
	umount "$scratch/home/cache"
	rm -rf "$scratch"
} >/dev/null 2>&1
trap end EXIT
detail() { timeout 60 python3 "$top/tests/cli/ask.py" "$scratch/run/sock" GET "/sandboxes/$id" | sed 1d; }
says() { detail | grep -q '"diskError":"the host has no space left'; }
ok "a pool" serve
id=$("$parbake" create tiny --timeout 10m)
unlike "$(detail)" diskError "a sandbox whose disk is well says nothing"
timeout 120 "$parbake" exec "$id" --shell "$fill" >"$scratch/o" 2>&1
like "$(cat "$scratch/o")" '^dd 1$' "the guest is told"
ok "the sandbox says so" await 30 says
like "$(cat "$scratch/log")" "$id: the host has no space left" "the daemon's log, too"
kill -9 "$daemon"
wait "$daemon" 2>/dev/null
ok "a second daemon starts" serve
ok "a second daemon is told that the host has no space left" await 30 says
finish
