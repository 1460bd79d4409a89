#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What differs between two versions is told: packages, files with their lines, config, memory; and two bakes of one
# recipe are the same but for memory.
. "$(dirname "$0")/lib.sh"
mkdir "$scratch/r"
cp -r "$recipes/." "$scratch/r/"
bake "$recipes/tiny.ini"
cat >"$scratch/r/other.ini" <<'EOF'
[template]
from = tiny
[machine]
vcpus = 2
[install]
80 = sed -i 's/^root:x:/root:y:/' /etc/passwd; printf 'esc\033[2J' >"/srv/a$(printf '\033[2J')b"; rm /etc/issue.net
81 = sed -i 's/^Version: 5.2.*/Version: 9.9/' /var/lib/dpkg/status
[start]
command = echo started >/run/tiny-started; exec sleep 12345
EOF
ok "a version that differs" timeout 900 "$parbake" bake "$scratch/r/other.ini"
"$parbake" diff tiny other >"$scratch/diff" 2>"$scratch/err"
is $? 3 "diff: the status is 3 where something differs"
text=$(cat "$scratch/diff")
like "$text" "^  vcpus: 1 → 2$" "the config"
like "$text" "^  [+]vcpus = 2$" "the recipe"
like "$text" "^  ~ debian bash 5.2[^ ]* → 9.9$" "a package"
like "$text" "^  - /etc/issue.net, " "a file that is gone"
like "$text" "^  ~ /etc/passwd: content" "a file that was changed"
like "$text" "^      [+]root:y:" "with its lines"
like "$text" "^  [+] /srv/a[?]\[2Jb, 7 B$" "a name that would move the cursor does not"
is "$(LC_ALL=C tr -d '\n\t -~\200-\377' <"$scratch/diff" | wc -c)" 0 "no control character is printed"
like "$text" "^memory: .*% are the same" "memory"
like "$text" "^  - sleep infinity: [0-9.]+ .iB → not there$" "a process that is gone"
like "$text" "^  [+] sleep 12345: not there → [0-9.]+ .iB$" "and one that is new"
"$parbake" diff tiny other --json >"$scratch/json"
is "$(python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
print(d["same"], d["a"]["name"], d["b"]["name"], [p["name"] for p in d["packages"]], [f["path"] for f in d["files"]["removed"]],
      d["memory"]["same_pages"] > 0, [(p["command"], p["a_count"], p["b_count"]) for p in d["processes"]["processes"] if "sleep" in p["command"]])' \
	"$scratch/json")" "False tiny other ['bash'] ['/etc/issue.net'] True [('sleep 12345', 0, 1), ('sleep infinity', 1, 0)]" "the same as JSON"

# the same as a page, with latencies that were measured
document() { # FACTOR: of create latencies
	python3 -c 'import json, random, sys
r = random.Random(1)
ns = [int(1e7 * float(sys.argv[1]) * r.uniform(0.99, 1.01)) for _ in range(200)]
host = {"kernel": "k", "machine": "m", "cores": 2, "processor": "p", "memory_bytes": 1, "load": 0.0, "accel": "tcg", "monitor": "qemu", "monitor_version": "1"}
series = {"name": "cold", "n": 200, "failed": 0, "p50_ns": 0, "p90_ns": 0, "p99_ns": 0, "max_ns": 0, "span_ns": 1, "total_ns": ns, "at_ns": [0] * 200}
print(json.dumps({"format": 1, "parbake": "0", "created": "now", "host": host, "runs": [{"bench": "create", "id": "create tiny", "title": "t", "facts": {}, "series": [series]}]}))' "$1"
}
document 1 >"$scratch/a.json"
document 2 >"$scratch/b.json"
"$parbake" diff tiny other --html "$scratch/page.html" --bench "$scratch/a.json" --bench "$scratch/b.json" >"$scratch/diff" 2>"$scratch/err"
is $? 3 "diff --html: the status is the same"
like "$(cat "$scratch/diff" "$scratch/err")" "create tiny cold, p50: [0-9.]+ ms → [0-9.]+ ms, [+]100.0 %: undecided" "create latency, where two documents are given"
is "$(python3 -c 'import html.parser, re, sys
class Page(html.parser.HTMLParser):
    open, wrong, text = [], [], ""
    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br"): self.open.append(tag)
        self.wrong += [(tag, a) for a, v in attrs if a in ("src", "href") or a.startswith("on")]
    def handle_startendtag(self, tag, attrs): pass
    def handle_endtag(self, tag):
        if self.open.pop() != tag: self.wrong.append(tag)
    def handle_data(self, data): self.text += data
p = Page()
p.feed(open(sys.argv[1]).read())
print(p.open, p.wrong, [w for w in ("/etc/issue.net", "bash", "+vcpus = 2", "sleep 12345", "+root:y:", "undecided", "Size by directory") if w not in p.text])' \
	"$scratch/page.html")" "[] [] []" "the page is whole, has all of it, and nothing outside of it"
not_ok "one document" "$parbake" diff tiny other --bench "$scratch/a.json"

# a recipe and a version
ok "a recipe and the version that it gave" "$parbake" diff "$recipes/tiny.ini" tiny
sed 's/^memory = .*/memory = 192M/' "$recipes/tiny.ini" >"$scratch/r/tiny.ini"
"$parbake" diff "$scratch/r/tiny.ini" tiny --json >"$scratch/json"
is $? 3 "a recipe that was changed: the status is 3"
is "$(python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
print(d["same"], d["config"], [l for l in d["recipe"] if "memory" in l])' "$scratch/json")" \
	"False [{'a': 201326592, 'b': 134217728, 'field': 'memory_bytes'}] ['-memory = 192M', '+memory = 128M']" "and what it would change is told"
not_ok "the version first" "$parbake" diff tiny "$recipes/tiny.ini"

ok "a version and itself" "$parbake" diff tiny tiny
like "$(cat "$scratch/out")" "the same, but for memory" "are the same"
like "$(cat "$scratch/out")" "100.0 % are" "all of their memory, too"
ok "a template is baked another time" timeout 900 "$parbake" bake "$recipes/tiny.ini" --store "$scratch/store" --force --from-stage guest
ok "a template is the same in another store" "$parbake" diff tiny tiny --other-store "$scratch/store"

# documents: the same each time, and with what they must have
for format in spdx cyclonedx provenance; do
	ok "sbom --format $format" "$parbake" sbom other --format $format
	cp "$scratch/out" "$scratch/$format.json"
	ok "sbom --format $format again" "$parbake" sbom other --format $format
	cp "$scratch/out" "$scratch/again"
	ok "a document is the same a second time" cmp "$scratch/again" "$scratch/$format.json"
done
digest=$("$parbake" inspect other | python3 -c 'import json, sys; print(json.load(sys.stdin)["digest"].split(":")[1])')
is "$(cd "$scratch" && python3 -c 'import json, sys
digest = sys.argv[1]
spdx, cdx, prov = (json.load(open(f"{f}.json")) for f in ("spdx", "cyclonedx", "provenance"))
names = {p["SPDXID"]: p for p in spdx["packages"]}
assert names["SPDXRef-Template"]["checksums"][0]["checksumValue"] == digest
bash = [p for p in names.values() if p["name"] == "bash"]
assert len(bash) == 1 and bash[0]["versionInfo"] == "9.9"
assert bash[0]["externalRefs"][0]["referenceLocator"] == "pkg:deb/debian/bash@9.9?arch=amd64"
contained = [r["relatedSpdxElement"] for r in spdx["relationships"] if r["relationshipType"] == "CONTAINS"]
assert sorted(contained + ["SPDXRef-Template"]) == sorted(names)
assert cdx["metadata"]["component"]["hashes"][0]["content"] == digest
assert sum(c.get("purl") == "pkg:deb/debian/bash@9.9?arch=amd64" for c in cdx["components"]) == 1
assert len({c["bom-ref"] for c in cdx["components"]}) == len(cdx["components"]) == len(names) - 1
assert prov["subject"] == [{"name": "other", "digest": {"sha256": digest}}]
found = prov["predicate"]["buildDefinition"]["resolvedDependencies"]
assert any(d.get("uri") == "pkg:deb/debian/bash@9.9?arch=amd64" for d in found)
assert "vcpus = 2" in prov["predicate"]["buildDefinition"]["externalParameters"]["recipe"]
print("good")' "$digest" 2>&1)" good "they name the version by its digest, and its packages"
not_ok "a form that there is not" "$parbake" sbom other --format xml

# verify: a restore, and where a damaged blob is damaged
ok "verify --boot" timeout 120 "$parbake" verify tiny --boot
like "$(cat "$scratch/out")" "restored, and its check passed after [0-9]+ ms" "restores it and runs its check"
ok "verify --boot --json" timeout 120 "$parbake" verify tiny --boot --json
like "$(cat "$scratch/out")" '"boot_ms":[0-9]+.*"ok":true' "the same as JSON"
blob=$scratch/store/$("$parbake" inspect tiny --store "$scratch/store" | python3 -c 'import json,sys
print(next(l["digest"] for l in json.load(sys.stdin)["layers"] if "memory.v1" in l["mediaType"]).replace("sha256:", "blobs/sha256/"))')
printf '\377\376\375' | dd of="$blob" bs=1 seek=$(($(stat -c %s "$blob") / 2)) conv=notrunc status=none
not_ok "verify of damaged memory" "$parbake" verify tiny --store "$scratch/store"
like "$(cat "$scratch/err")" "bytes [0-9]+ to [0-9]+ of it \([0-9]+ to [0-9]+ of what it holds\) are wrong: 1 of [0-9]+ frames" \
	"which bytes of it are wrong is told"
not_ok "a version that is not there" "$parbake" diff tiny nothing-of-it
finish
