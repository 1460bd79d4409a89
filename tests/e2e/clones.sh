#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Many sandboxes of one template: each its own memory, disk and identity; the template unchanged.
. "$(dirname "$0")/lib.sh"
bake "$recipes/tiny.ini"

before=$("$parbake" inspect tiny | sha256sum)
for i in $(seq 20); do
	mkfifo "$scratch/go$i"
	"$parbake" run tiny -t 120s -e N="$i" --shell '
		head -c 4000000 /dev/urandom >/dev/shm/mine; echo "$N" >/root/mine; sync
		echo ready >/run/ready
		cat /etc/machine-id /proc/sys/kernel/random/uuid /proc/sys/kernel/hostname
		head -c 16 /dev/urandom | od -An -tx1 | tr -d " \n"; echo
		date +%s; read go; cat /root/mine; wc -c </dev/shm/mine' \
		<"$scratch/go$i" >"$scratch/clone$i" 2>"$scratch/clone$i.err" &
	pids[i]=$!
	exec {hold[i]}>"$scratch/go$i"
done
arrived() { [ "$(cat "$scratch"/clone? "$scratch"/clone?? 2>/dev/null | wc -l)" -ge 100 ]; }
ok "20 at once" await 120 arrived
now=$(date +%s)

pss=0 guests=0
for i in $(seq 20); do
	for q in $(monitors "${pids[i]}"); do
		read -r rss_kb pss_kb private_kb < <(awk '/^[0-9a-f]+-/ { in_memfd = /memfd:/ }
			in_memfd && /^Rss:/ { r += $2 } in_memfd && /^Pss:/ { p += $2 }
			in_memfd && /^Private_Dirty:/ { d += $2 } END { print r + 0, p + 0, d + 0 }' "/proc/$q/smaps")
		guests=$((guests + 1)) pss=$((pss + pss_kb)) rss=$((${rss:-0} + rss_kb)) private=$((${private:-0} + private_kb))
	done
done
echo "# guest memory of $guests machines: RSS $rss KiB, PSS $pss KiB, private $private KiB"
is "$guests" 20 "20 machines run"
ok "PSS shows that memory is shared" test $((pss * 10)) -lt $((rss * 9))

# all of them read one disk, from the page cache: a create does not drop it from there
disk=$(readlink /proc/"$q"/fd/* | grep -m 1 /disks/)
cached() { fincore -bnro RES "$disk"; }
cat "$disk" >/dev/null
cached=$(cached)
ok "one more" timeout 60 "$parbake" run tiny -- true
ok "the disk stays in the page cache ($((cached >> 10)) KiB)" test "$cached" -gt 0 -a "$(cached)" -ge "$cached"

for i in $(seq 20); do
	echo go >&"${hold[i]}"
	exec {hold[i]}>&-
done
bad=0
for i in $(seq 20); do
	wait "${pids[i]}" || bad=$((bad + 1))
	[ "$(sed -n 6p "$scratch/clone$i")" = "$i" ] || bad=$((bad + 1))
	[ "$(sed -n 7p "$scratch/clone$i")" = 4000000 ] || bad=$((bad + 1))
	t=$(sed -n 5p "$scratch/clone$i")
	[ $((t > now + 60 || t < now - 180)) = 0 ] || bad=$((bad + 1))
done
is $bad 0 "each finds its own disk and memory, and the clock right"
for line in 1 2 3 4; do
	what=(- machine-id uuid hostname urandom)
	is "$(for i in $(seq 20); do sed -n ${line}p "$scratch/clone$i"; done | sort -u | wc -l)" 20 \
		"20 different: ${what[line]}"
done
is "$("$parbake" inspect tiny | sha256sum)" "$before" "the template is what it was"
ok "all its digests too" "$parbake" verify tiny
finish
