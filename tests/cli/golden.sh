#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What an older parbake wrote is read: a store of each released format lies in tests/golden, as text, and is never changed.
# A later format is refused by name. One byte that is changed anywhere in it is found.
. "$(dirname "$0")/../lib.sh"
export PARBAKE_HOME=$scratch/home
mkdir -m 700 "$PARBAKE_HOME"
golden=$top/tests/golden
store=$scratch/one/store

unpack_golden "$golden/store-1.txt" "$store"
ok "a store of format 1 is whole" "$parbake" verify golden:v1 --store "$store"
ok "a golden template is signed" "$parbake" verify golden:v1 --store "$store" --require-signature "$scratch/one/key.pub"
"$parbake" inspect golden:v1 --config --store "$store" >"$scratch/config"
ok "a golden template's config is read" python3 - "$scratch/config" <<'END'
import json, sys
c = json.load(open(sys.argv[1]))
assert c["format"] == 1 and c["memory_bytes"] == 64 << 20 and c["vcpus"] == 1 and c["disk_bytes"] == 1 << 20
assert c["monitor_version"] == "7.2.22 (parbake-0123456789ab, Debian 1:7.2+dfsg-7)" and c["tsc_khz"] == 2500000
assert c["env"] == ["LANG=C.UTF-8"] and c["ready"] == "python: assert 6 * 7 == 42" and c["exec_timeout_ms"] == 30000
assert c["extra"]["delta"] == [[4096, 16384], [65536, 16384]] and c["extra"]["aliases"] == ["gold"]
END
ok "a golden template's recipe is read" "$parbake" inspect golden:v1 --recipe --store "$store"
like "$(cat "$scratch/out")" "^memory = 64M$" "as it was written"
is "$("$parbake" inspect gold:v1 --store "$store" | python3 -c 'import json, sys; print(json.load(sys.stdin)["name"])')" golden \
	"its alias leads to it"
like "$("$parbake" ls --store "$store")" "^golden +v1 " "ls shows it"

# the same with another number: refused by name, with what to do
cp -r "$scratch/one" "$scratch/two"
python3 - "$scratch/two/store" <<'END'
import hashlib, json, os, sys
def blob(value):
    text = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    name = hashlib.sha256(text).hexdigest()
    open(f"{sys.argv[1]}/blobs/sha256/{name}", "wb").write(text)
    return {"digest": "sha256:" + name, "size": len(text)}
def read(descriptor):
    return json.load(open(f"{sys.argv[1]}/blobs/" + descriptor["digest"].replace(":", "/")))
index = json.load(open(sys.argv[1] + "/index.json"))
manifest = read(index["manifests"][0])
config = read(manifest["config"])
config["format"] = 2
manifest["config"].update(blob(config))
index["manifests"][0].update(blob(manifest))
json.dump(index, open(sys.argv[1] + "/index.json", "w"))
END
for command in "verify golden:v1" "inspect golden:v1 --recipe" "run golden:v1 -- true"; do
	# shellcheck disable=SC2086 # words
	not_ok "${command%% *} of a later format" "$parbake" ${command%% *} --store "$scratch/two/store" ${command#* }
	like "$(cat "$scratch/err")" "format 2" "is refused by name"
done

# one changed byte, in any file that a reader relies on
is "$(python3 - "$parbake" "$store" <<'END'
import os, subprocess, sys
parbake, store = sys.argv[1:]
missed, tried = [], 0
blobs = store + "/blobs/sha256/"
for name in sorted(os.listdir(blobs)):
    size = os.path.getsize(blobs + name)
    for at in sorted({0, size - 1, *range(0, size, 151)}):
        with open(blobs + name, "r+b") as file:
            file.seek(at)
            was = file.read(1)
            file.seek(at)
            file.write(bytes([was[0] ^ 1]))
        tried += 1
        if subprocess.run([parbake, "verify", "golden:v1", "--store", store], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, timeout=60).returncode == 0:
            missed.append((name, at))
        with open(blobs + name, "r+b") as file:
            file.seek(at)
            file.write(was)
print(missed, tried > 60)
END
)" "[] True" "verify finds each of them"
ok "all put back, it is whole" "$parbake" verify golden:v1 --store "$store"
finish
