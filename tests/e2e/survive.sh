#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Fail closed: a pager that dies takes its machines along; a busy host boots all the same.
. "$(dirname "$0")/lib.sh"
bake "$recipes/tiny.ini"

if [ "$(doctor userfaultfd verdict)" = good ]; then
	"$parbake" run tiny -t 60s --shell 'echo up; sleep 100' >"$scratch/o" 2>"$scratch/e" &
	pid=$!
	ok "a sandbox runs" await 20 grep -q up "$scratch/o"
	qemu=$(monitors $pid)
	pager=$(pgrep -f "pager .*$PARBAKE_HOME/run/" | head -n 1)
	ok "a sandbox's pager runs" test -n "$pager"
	began=$(date +%s%N)
	[ -n "$pager" ] && kill -9 "$pager"
	ok "kill -9 of the pager ends the machine" await 5 gone "$qemu"
	took=$((($(date +%s%N) - began) / 1000000))
	echo "# the machine was gone after $took ms"
	ok "within a second" test $took -lt 1000
	wait $pid
	is $? 125 "parbake run fails"
	like "$(cat "$scratch/e")" "pager" "and says that the pager is gone"
	is "$(timeout 60 "$parbake" run tiny -- echo again)" again "the next sandbox starts a new pager"
else
	skip "a dead pager" "userfaultfd may not be used here"
fi
is "$(PARBAKE_NO_UFFD=1 timeout 60 "$parbake" run tiny -- echo private)" private "a sandbox runs without userfaultfd, too"

# a damaged memory blob is noticed before a machine reads a wrong byte
cp -r "$PARBAKE_HOME/store" "$scratch/store"
blob=$scratch/store/$("$parbake" inspect tiny | python3 -c 'import json,sys
print([l["digest"] for l in json.load(sys.stdin)["layers"] if ".memory." in l["mediaType"]][0].replace(":","/"))' | sed 's,^,blobs/,')
size=$(stat -c %s "$blob")
chmod u+w "$blob"
for at in $(seq $((size / 20)) $((size / 20)) $((size - 1))); do
	printf '\xaa\x55\xaa\x55' | dd of="$blob" bs=1 seek="$at" conv=notrunc status=none
done
not_ok "verify notices" "$parbake" verify tiny --store "$scratch/store"
not_ok "a restore from it fails" timeout 60 "$parbake" run tiny --store "$scratch/store" -t 20s -- echo wrong

# ten boots, four busy loops
for _ in 1 2 3 4; do
	(trap 'exit' TERM; while :; do :; done) &
	busy="$busy $!"
done
timeout 600 "$parbake" bench create tiny --mode cold -n 1 --boots 10 >"$scratch/bench" 2>"$scratch/bench.err"
is $? 0 "10 of 10 boots on a busy host"
sed 's/^/# /' "$scratch/bench"
tail -n 5 "$scratch/bench.err" | sed 's/^/# /'
# shellcheck disable=SC2086
kill $busy
finish
