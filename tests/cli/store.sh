#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The command on a store that another tool made: what it prints, and what it refuses at once.
. "$(dirname "$0")/../lib.sh"
export PARBAKE_HOME=$scratch/home
store=$scratch/store

# A layout with one template, whose config says @description.
make_store() {
	rm -rf "$store"
	python3 - "$store" "$1" <<-'PY'
		import hashlib, json, os, sys
		top, description = sys.argv[1:]
		os.makedirs(top + "/blobs/sha256")
		def put(media, data):
		    hexa = hashlib.sha256(data).hexdigest()
		    open(f"{top}/blobs/sha256/{hexa}", "wb").write(data)
		    return {"mediaType": media, "digest": "sha256:" + hexa, "size": len(data)}
		some = "sha256:" + "0" * 64
		config = {"format": 1, "memory_bytes": 1 << 27, "vcpus": 1, "accel": "tcg", "monitor": "qemu",
		    "monitor_version": "1", "machine": "m", "cpu": "max", "cpu_features": "", "tsc_khz": 0,
		    "page_bytes": 4096, "kernel_digest": some, "agent_digest": "", "protocol": 1,
		    "boot_nonce": "0" * 32, "disk_bytes": 1 << 24, "disk_raw_digest": some,
		    "delta_raw_digest": "", "memory_raw_digest": some, "memory_data_bytes": 0, "env": [],
		    "context": False, "exec_timeout_ms": 0, "output_bytes": 0, "exec_memory_bytes": 0,
		    "exec_pids": 0, "recipe_digest": "", "recipe": "[template]\nname = foreign\n",
		    "description": description}
		manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		    "artifactType": "application/vnd.parbake.template.v1", "layers": [],
		    "config": put("application/vnd.parbake.config.v1+json", json.dumps(config).encode())}
		entry = put(manifest["mediaType"], json.dumps(manifest, indent=1).encode())
		entry["annotations"] = {"org.opencontainers.image.ref.name": "foreign"}
		json.dump({"imageLayoutVersion": "1.0.0"}, open(top + "/oci-layout", "w"))
		json.dump({"schemaVersion": 2, "manifests": [entry]}, open(top + "/index.json", "w"))
		print(entry["digest"].removeprefix("sha256:"))
	PY
}

digest=$(make_store "one of another tool")
ok "inspect --manifest" "$parbake" inspect foreign --manifest --store "$store"
is "$(sha256sum <"$scratch/out" | cut -d' ' -f1)" "$digest" "a manifest is printed byte for byte"
is "$("$parbake" inspect foreign --recipe --store "$store")" "[template]
name = foreign" "inspect --recipe"
like "$("$parbake" ls --json --store "$store")" '"description":"one of another tool"' "ls --json"

make_store $'clear \e[2J your screen' >/dev/null
not_ok "a config with an escape sequence is refused" "$parbake" inspect foreign --recipe --store "$store"
like "$(cat "$scratch/err")" 'description.*control characters' "the error says that a description has control characters"
is "$(tr -d '\n\t -~' <"$scratch/err" | wc -c)" 0 "no control character reaches the terminal"

not_ok "verify refuses what run refuses" "$parbake" verify foreign --store "$store"

make_store "one of another tool" >/dev/null
mv "$store" "$scratch/"$'st\xffre'
ok "verify --json where a name is not UTF-8" "$parbake" verify foreign --json --store "$scratch/"$'st\xffre'
like "$(cat "$scratch/out")" '"ok":true' "says so in JSON"

# who starts us may ignore SIGCHLD: children's statuses are wanted all the same
printf '#!/bin/sh\nexit 3\n' >"$scratch/qemu"
chmod +x "$scratch/qemu"
PARBAKE_QEMU=$scratch/qemu python3 -c 'import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])' "$parbake" doctor >"$scratch/out" 2>&1
like "$(grep ' monitor ' "$scratch/out")" "exit status 3|status 3" "a child's status is seen where SIGCHLD was ignored"

# what would fail at the end of a bake fails at its beginning
not_ok "a tag that is none" timeout 20 "$parbake" bake base --tag 'a b'
like "$(cat "$scratch/err")" '"a b" is not a tag' "a tag that is none is refused before anything is made"
not_ok "a name that the store would refuse" timeout 20 "$parbake" bake \
	"$top/tests/hostile/recipes/name-end.ini"
like "$(cat "$scratch/err")" "not a template name" "a name that is none is refused before anything is made"
not_ok "a timeout that no clock can hold" "$parbake" run foreign --timeout 9999999999999h -- true
like "$(cat "$scratch/err")" "not a duration up to a year" "a duration that is none is refused"
finish
