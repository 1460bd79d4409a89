#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The wall clock of a sandbox is the host's, to within 5 ms, at its first command: made cold, from a spare, resumed, forked.
. "$(dirname "$0")/lib.sh"
bake "$recipes/tiny.ini"

# within COMMAND…: a command line that runs a line of bash in a sandbox, which says the time whenever it gets a line. The
# host's time before and after bounds each answer; of some the one with the least between counts. What is further off
# than 5 ms, whatever the way there and back took, is wrong
cat >"$scratch/within.py" <<'PY'
import subprocess, sys, time
ask = "while read -r _; do echo $EPOCHREALTIME; done"
p = subprocess.Popen(sys.argv[1:] + [f"exec bash -c '{ask}'"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
best = None
for _ in range(40):
    before = time.time()
    p.stdin.write(b"\n")
    p.stdin.flush()
    there = float(p.stdout.readline())
    after = time.time()
    if best is None or after - before < best[1]:
        best = ((before + after) / 2 - there, after - before)
p.stdin.close()
p.stdout.close()
p.wait()
late, way = best
print(f"# {late * 1000:.1f} ms late, known to within {way * 500:.1f} ms")
sys.exit(abs(late) - way / 2 > 0.005)
PY
within() {
	timeout 120 python3 "$scratch/within.py" "$@" >"$scratch/within"
	local status=$?
	cat "$scratch/within" >&3
	return $status
}
exec 3>&1
for _ in 1 2 3; do
	ok "a sandbox that was just made" within "$parbake" run tiny -t 60s --shell
done

unset PARBAKE_API_KEY
export PARBAKE_API=unix:$scratch/run/sock
mkdir -m 700 "$scratch/run"
own_run
printf '[pool]\nsocket = %s\nstate = %s\n[template tiny]\nspares = 1\n' "$scratch/run/sock" "$scratch/state" >"$scratch/pool.conf"
"$parbake" pool serve --config "$scratch/pool.conf" 2>"$scratch/log" &
daemon=$!
# shellcheck disable=SC2317 # called by trap
end() {
	"$parbake" kill --all
	kill "$daemon"
	wait
	rm -rf "$scratch"
} >/dev/null 2>&1
trap end EXIT
ok "a pool" await 60 grep -q "the pool answers" "$scratch/log"
id=$("$parbake" create tiny --timeout 10m)
ok "the clock of a pool's sandbox is right" within "$parbake" exec "$id" -i --shell
spare() { "$parbake" pool status --json | grep -q '"spares": *1'; }
await 60 spare
id=$("$parbake" create tiny --timeout 10m)
ok "the clock of a spare that was handed out is right" within "$parbake" exec "$id" -i --shell
ok "the sandbox is paused" "$parbake" pause "$id"
sleep 1
ok "the sandbox is resumed" "$parbake" resume "$id"
ok "the clock of a resumed sandbox is right" within "$parbake" exec "$id" -i --shell
fork=$("$parbake" fork "$id")
ok "the clock of a fork is right" within "$parbake" exec "$fork" -i --shell
ok "the clock of a sandbox that was forked is right" within "$parbake" exec "$id" -i --shell
finish
