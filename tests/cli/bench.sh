#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# parbake bench: each verb on a small template; documents, traces and pages judged by other programs, the page
# looked at by a browser, the gate on one build twice and on one that is slower.
. "$(dirname "$0")/../e2e/lib.sh"
bake "$recipes/tiny.ini"

bench() { timeout 300 "$parbake" bench "$@"; }
# json EXPRESSION FILE: of the document d, in Python
json() { python3 -c "import json,sys; d=json.load(open(sys.argv[1])); r=d['runs'][0] if 'runs' in d else d; print($1)" "$2"; }
series() { json "[s for s in r['series'] if s['name']=='$1'][0]$2" "$3"; }
uffd=$([ "$(doctor userfaultfd verdict)" = good ] && echo 1 || echo 0)

# creates
ok "create, taken apart" bench create tiny -n 12 --boots 1 --trace --perfetto "$scratch/p.json" --save "$scratch/a.json"
cp "$scratch/out" "$scratch/table"
like "$(cat "$scratch/table")" '^cold +12 +0 ' "every create is counted"
like "$(cat "$scratch/table")" '^  hello .*█' "a waterfall"
is "$(series cold '["n"]' "$scratch/a.json") $(series standby '["n"]' "$scratch/a.json") $(series spare '["n"]' "$scratch/a.json")" \
	"12 12 12" "the document has all samples"
is "$(json 'all(sum(s["parts_ns"][p][i] for p in s["parts_ns"]) == s["total_ns"][i] for s in r["series"] if "parts_ns" in s for i in range(s["n"]))' \
	"$scratch/a.json")" True "their parts add up"
is "$(json 'sorted(r["facts"]) and d["host"]["cores"] > 0 and d["host"]["kernel"] != "" and r["facts"]["page_cache"]' "$scratch/a.json")" \
	warm "the host is described"
is "$(json 'sum(1 for e in d["traceEvents"] if e.get("cat") == "create")' "$scratch/p.json")" 36 "a trace of every create"
is "$(json 'all(e["dur"] >= 0 and e["ts"] >= 0 for e in d["traceEvents"] if e["ph"] == "X" and e["cat"] != "pager")' "$scratch/p.json")" \
	True "in the format's terms"
if [ "$uffd" = 1 ]; then
	ok "creates are measured without a working set" bench create tiny -n 3 --mode cold --boots 0 --no-premap --trace --save "$scratch/b.json"
	ok "faults are traced without a working set" test "$(json 'len(r["traces"][0]["faults"])' "$scratch/b.json")" -gt 20
	is "$(json '[len(t["faults"]) for t in r["traces"]] == [r["series"][1]["faults"][t["sample"]] for t in r["traces"]]' "$scratch/b.json")" True \
		"as many as its sample has"
	like "$(json '" ".join(f["meaning"] for f in r["traces"][0]["faults"])' "$scratch/b.json")" 'kernel text: [a-z_]+[a-z]' \
		"with the names of the kernel's pages"
else
	skip "faults" "userfaultfd may not be used here"
fi
ok "ten creates begin together" bench create tiny -n 20 --mode cold --boots 0 --concurrency 10 --save "$scratch/c.json" \
	--perfetto "$scratch/q.json"
is "$(json 'len({e["tid"] for e in d["traceEvents"] if e.get("cat") == "create"})' "$scratch/q.json")" 10 \
	"a trace has a track for each client"
is "$(series cold '["n"]' "$scratch/c.json") $(series cold '["failed"]' "$scratch/c.json")" "20 0" "all creates that begin together are made"
ok "an open loop" bench create tiny -n 10 --mode spare --boots 0 --rate 20 --save "$scratch/o.json"
is "$(json '[round(a / 1e6) for a in sorted(r["series"][1]["at_ns"])]' "$scratch/o.json")" \
	"[0, 50, 100, 150, 200, 250, 300, 350, 400, 450]" "begins on time"
ok "cold files" bench create tiny -n 2 --mode cold --boots 0 --cold-cache --result exec --save "$scratch/d.json"
is "$(json 'r["facts"]["page_cache"] + " " + str(r["facts"]["page_cache_left"] < 0.05)' "$scratch/d.json")" "cold True" \
	"are cold"
ok "first creates, boots and modes are measured in turn" bench create tiny -n 4 --mode cold --mode spare --boots 2 --firsts 2 --save "$scratch/t.json"
is "$(json '" ".join(n for _, n in sorted((a, s["name"]) for s in r["series"] for a in s["at_ns"]))' "$scratch/t.json")" \
	"cold spare boot first spare cold cold spare boot first spare cold" "no mode, boot or first create stands in a block"
is "$(json 'r["facts"]["first_page_cache_left"] < 0.05' "$scratch/t.json")" True "first creates find cold files"
is "$(json 'all(len(s["costs"]["cpu_ns"]) == s["n"] and min(s["costs"]["cpu_ns"]) > 0 and min(s["costs"]["minor_faults"]) > 0 for s in r["series"] if "costs" in s) and len(r["series"])' "$scratch/t.json")" \
	4 "each create has its costs"
ok "creates are measured for a time" bench create tiny --duration 2s --mode spare --boots 0 --save "$scratch/u.json"
is "$(json '0 < r["series"][1]["n"] < 20000 and r["facts"]["duration_s"]' "$scratch/u.json")" 2.0 "a duration ends a measurement, not a number"
# stopped in the middle: what there is is kept, and marked
PARBAKE_FAULT='?' timeout 300 "$parbake" bench create tiny -n 20000 --mode spare --boots 0 --save "$scratch/v.json" \
	>"$scratch/out" 2>"$scratch/err" &
pid=$!
# a spare passes this point twice: when it is made, and when it is handed out
ok "a measurement makes creates" await 120 eval '[ "$(grep -c restore.activate.begin "$scratch/err")" -ge 8 ]'
kill -TERM $pid
wait $pid
is $? 143 "SIGTERM ends a measurement"
is "$(json '0 < r["series"][1]["n"] < 20000 and (r["facts"]["partial"], r["series"][1]["failed"])' "$scratch/v.json")" "('Terminated', 0)" \
	"the document has what was measured, and says that it is a part"
bench compare "$scratch/v.json" "$scratch/v.json" >"$scratch/gate"
like "$(cat "$scratch/gate")" 'note: new: .*stopped early' "a comparison says that a document is a part"
not_ok "what cannot go together" bench create tiny --trace --rate 3
like "$(cat "$scratch/err")" "no --rate" "says so"

# the others
ok "boot" bench boot tiny -n 1
ok "exec" bench exec tiny -n 5 --mib 1
ok "density" bench density tiny --clones 1,3 --save "$scratch/e.json"
is "$(json '[row[0:2] for row in r["table"]["rows"]]' "$scratch/e.json")" "[[1, 'idle'], [3, 'idle'], [1, 'busy'], [3, 'busy']]" \
	"by number of clones, idle and busy"
is "$(json 'all(row[2] > 0 and row[4] > 0 and row[7] > row[5] for row in r["table"]["rows"])' "$scratch/e.json")" True "a density's table has its numbers"
ok "fault" bench fault -n 1 --memory 2 --window 4,64 --frame 64 --save "$scratch/f.json"
ok "image" bench image tiny --frame 64 --level 1 -n 50 --save "$scratch/g.json"
not_ok "no such verb" bench crate tiny
like "$(cat "$scratch/err")" "do you mean .bench create" "gets the nearest name"

# The gate, over documents: five runs of one build are not slower than themselves, and with 20 ms more in its create path they do
# not; one run is never enough. (tests/cli/gate.sh has the rest.)
for i in 1 2 3 4 5; do
	bench create tiny -n 12 --mode spare --boots 0 --save "$scratch/x$i.json" >"$scratch/out" 2>&1
	PARBAKE_FAULT=restore.activate.begin=20ms bench create tiny -n 12 --mode spare --boots 0 --save "$scratch/y$i.json" \
		>"$scratch/out" 2>&1
done
bench report --save "$scratch/old.json" "$scratch"/x?.json
bench report --save "$scratch/slow.json" "$scratch"/y?.json
bench compare "$scratch/old.json" "$scratch/old.json" --max-regress p50=60% >"$scratch/gate"
result=$? # 3, undecided, where the host was so busy that the runs differ widely
like "$result" '^[03]$' "runs compared with themselves are not called slower"
bench compare "$scratch/old.json" "$scratch/slow.json" --max-regress p50=60% >"$scratch/gate"
is $? 1 "20 ms more in each create are noticed"
like "$(cat "$scratch/gate")" '^verdict: slower' "the gate says that it is slower"
is "$(series spare '["parts_ns"]["ask"]' "$scratch/slow.json" | tr -d '[],' | awk '{print ($1 >= 2e7)}')" 1 "the trace shows where"
is "$(bench compare "$scratch/old.json" "$scratch/slow.json" --max-regress p50=60% --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["verdict"])')" \
	slower "as JSON too"
bench compare "$scratch/x1.json" "$scratch/y1.json" >"$scratch/gate"
is $? 3 "one run of each side is undecided"
bench compare "$scratch/x1.json" "$scratch/y1.json" --strict >"$scratch/gate"
is $? 1 "which --strict makes a failure"
bench compare "$scratch/x1.json" "$scratch/f.json" >"$scratch/gate"
is $? 1 "a series that has vanished is a regression"
bench compare "$scratch/f.json" "$scratch/x1.json" >"$scratch/gate"
is $? 2 "documents that cannot be compared"

# the page
ok "a page of all" bench report --save "$scratch/all.json" --report "$scratch/page.html" --against "$scratch/a.json" \
	"$scratch"/[a-g].json
ok "a report's page is well-formed" python3 -c 'import sys, xml.etree.ElementTree as E; E.parse(sys.argv[1])' "$scratch/page.html"
ok "joined, it is one document" test "$(json 'len(d["runs"])' "$scratch/all.json")" -ge 5
browser=$(command -v chromium-headless-shell || command -v chromium || command -v google-chrome)
if [ -n "$browser" ]; then
	look() { # SCHEME NUMBER: a picture of the page
		timeout 120 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1000,2400 \
			--user-data-dir="$scratch/profile" --blink-settings=preferredColorScheme="$2" \
			--screenshot="$scratch/$1.png" "file://$scratch/page.html"
		[ -s "$scratch/$1.png" ]
	}
	ok "a browser draws it, light" look light 1
	ok "a report's page has a dark form" look dark 0
	read -r width height used background colours < <(python3 "$top/tests/cli/picture.py" "$scratch/light.png")
	is "$width $height $background" "1000 2400 #ffffff" "light: the page's own background"
	ok "drawn all over ($used rows, $colours colours)" test "$used" -gt 2000 -a "$colours" -gt 60
	read -r width height used background colours < <(python3 "$top/tests/cli/picture.py" "$scratch/dark.png")
	is "$background" "#14171b" "dark: too"
	ok "drawn all over ($used rows, $colours colours)" test "$used" -gt 2000 -a "$colours" -gt 60
	timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$scratch/profile" --dump-dom \
		"file://$scratch/page.html" >"$scratch/dom" 2>/dev/null
	is "$(grep -o '<svg' "$scratch/dom" | wc -l)" "$(grep -o '<svg' "$scratch/page.html" | wc -l)" \
		"the browser's own tree has every picture"
else
	skip "a browser" "no Chromium here: apt-get install chromium-headless-shell"
fi

# peers, in the same run
if [ -x "$top/build/bench_peers" ]; then
	ok "peers" timeout 300 "$top/build/bench_peers" -n 2 --save "$scratch/peers.json" tiny
	is "$(json 'sorted({row[0] for row in r["table"]["rows"]})[0:2]' "$scratch/peers.json")" \
		"[\"QEMU's snapshot, eager\", 'cold boot']" "are measured"
	ok "QEMU's own snapshot holds the memory" test "$(json 'r["facts"]["eager_state_bytes"]' "$scratch/peers.json")" -gt 4000000
fi
finish
