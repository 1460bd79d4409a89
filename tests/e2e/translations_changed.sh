#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A kept translation is used only where the guest's bytes are those that it was made from: code is changed in every way in
# which it can change (tests/e2e/selfcode_guest.c), with one processor and with eight; and an image that another
# processor made, whole and with a good record, is left alone.
. "$(dirname "$0")/lib.sh"

if [ ! -x "$top/build/parbake-qemu" ]; then
	skip "code that changes under kept translations" "the trimmed QEMU is not built; make monitor"
	finish
fi
export PARBAKE_ACCEL=tcg PARBAKE_TRAIN=off

# selfcode VCPUS: the recipe
selfcode() {
	cat <<-END
		[template]
		name = selfcode-$1
		[machine]
		memory = 128M
		vcpus = $1
		disk = 256M
		[root]
		source = debian
		suite = bookworm
		[files]
		/usr/local/bin/selfcode = $top/build/guest/selfcode 0755
		[start]
		command = exec /usr/local/bin/selfcode serve
		ready = /usr/local/bin/selfcode call
		[warm]
		programs = /usr/local/bin/selfcode call
	END
}
run() { timeout 240 "$parbake" run "$1" -- "${@:2}"; }

for n in 1 8; do
	selfcode $n >"$scratch/selfcode-$n.ini"
	bake "$scratch/selfcode-$n.ini"
	ok "$n processors: translations are in use" maps_translations selfcode-$n
	is "$(run selfcode-$n selfcode call)" "1 10 20 40 50 51 60" "$n processors: code is what it was"
	run selfcode-$n selfcode break >"$scratch/answer"
	is "$(grep -c ': right$' "$scratch/answer")" 11 "$n processors: code that has changed runs as it is now"
	is "$(grep -v ': right$' "$scratch/answer")" "" "$n processors: and never as it was"
done

# the first word of what the image says of its processor, and a record that says this is what it holds
other_processor() {
	python3 - "$PARBAKE_HOME/cache" "$1" <<-'END'
		import hashlib, json, os, struct, sys
		cache, file = sys.argv[1:]
		os.chmod(file, 0o600)
		with open(file, "r+b") as f:
		    f.seek(16 + 112)
		    word = f.read(4)
		    f.seek(16 + 112)
		    f.write(bytes([word[0] ^ 1]) + word[1:])
		os.chmod(file, 0o400)
		data = open(file, "rb").read()
		digest = hashlib.sha256(struct.pack("<Q", len(data)))
		for at in range(0, len(data), 4096):
		    page = data[at:at + 4096]
		    if page.strip(b"\0"):
		        digest.update(struct.pack("<Q", at) + page)
		record = f"{cache}/verified/translations-{os.path.basename(file)}"
		was = json.load(open(record))
		was["content"] = "sha256:" + digest.hexdigest()
		json.dump(was, open(record, "w"))
	END
}
kept() { ls -t "$PARBAKE_HOME"/cache/translations/* | head -n 1; }
rm "$(kept)"
bake "$scratch/selfcode-8.ini"
other_processor "$(kept)"
not_ok "what another processor's machine made is not used" maps_translations selfcode-8
is "$(run selfcode-8 selfcode call 2>&1)" "1 10 20 40 50 51 60" "code that was changed is not damaged by translations"
for n in 1 8; do "$parbake" rm selfcode-$n; done
finish
