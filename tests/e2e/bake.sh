#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Baking: what is published, twice the same, and every way it may fail without a trace.
. "$(dirname "$0")/lib.sh"
tiny=$recipes/tiny.ini
store=$PARBAKE_HOME/store

config() { "$parbake" inspect "$1" --config; }
field() { python3 -c 'import json,sys; v=json.load(sys.stdin)
for k in sys.argv[1].split("."): v=v[k]
print(v)' "$1"; }
layer() { # TEMPLATE MEDIA-PART: the blob's path
	"$parbake" inspect "$1" | python3 -c 'import json,sys
for l in json.load(sys.stdin)["layers"]:
    if sys.argv[1] in l["mediaType"]: print(l["digest"].replace("sha256:","blobs/sha256/"))' "$2"
}
# all that lies in the store and in its directories, but for locks
listing() { (cd "$store" && find . -type f ! -name '*lock*' | sort | xargs sha256sum); }
litter() { find "$PARBAKE_HOME" -name '.tmp-*' -o -name '*.part' | head -n 5; }

ok "bake tiny" timeout 900 "$parbake" bake "$tiny"
ok "bake it again" timeout 60 "$parbake" bake "$tiny"
like "$(cat "$scratch/out" "$scratch/err")" "up to date" "which does nothing and says so"
ok "verify" "$parbake" verify tiny
like "$("$parbake" ls)" "^tiny +latest +sha256:" "ls shows it"

disks() { find "$PARBAKE_HOME/cache/disks" -type f ! -name '.*' | sort; }
ok "a sandbox" timeout 60 "$parbake" run tiny -- true
ok "gc of all that is not needed" "$parbake" gc --keep 0 --keep-cache 0
before=$(disks)
ok "the template's disk is needed" test -n "$before"
ok "a sandbox after it" timeout 60 "$parbake" run tiny -- true
is "$(disks)" "$before" "a template keeps its disk when its memory is baked anew"

# every line of a step reaches its shell as it stands: comments, blank lines, the ends of cases
mkdir "$scratch/lines"
cp -r "$recipes/." "$scratch/lines/"
cat >"$scratch/lines/lines.ini" <<'EOF'
[template]
from = tiny
[install]
1 = case x in
    x) echo one >/srv/o
    ;;
    esac
    cat >/srv/s <<'X'
    #!/bin/sh
    # kept

    echo two
    X
    sh /srv/s >>/srv/o; head -n 1 /srv/s >>/srv/o; wc -l </srv/s >>/srv/o
EOF
ok "bake a recipe with a script in a step" timeout 900 "$parbake" bake --from-stage guest "$scratch/lines/lines.ini"
is "$(timeout 60 "$parbake" run lines -- cat /srv/o | tr '\n' ,)" "one,two,#!/bin/sh,4," "the script has each of its lines"

for image in memory disk; do
	is "$(zstd -dc "$store/$(layer tiny "$image.v1")" | sha256sum | cut -d' ' -f1)" \
		"$(config tiny | field "${image}_raw_digest" | cut -d: -f2)" \
		"zstd -dc of the $image blob has the digest that the config names"
done
ok "skopeo reads the manifest" skopeo inspect --raw "oci:$store:tiny"
is "$(sha256sum <"$scratch/out" | cut -d' ' -f1)" \
	"$("$parbake" inspect tiny | field digest | cut -d: -f2)" "skopeo sees the digest that parbake names"
ok "inspect prints the manifest" "$parbake" inspect tiny --manifest
is "$(sha256sum <"$scratch/out" | cut -d' ' -f1)" \
	"$("$parbake" inspect tiny | field digest | cut -d: -f2)" "byte for byte"
zstd -dc "$store/$(layer tiny disk.v1)" >"$scratch/disk.raw"
ok "e2fsck finds the root disk clean" e2fsck -fn "$scratch/disk.raw"
rm -f "$scratch/disk.raw"

# the same disk from another directory, umask, time zone, home
first=$(config tiny | field disk_raw_digest)
mkdir "$scratch/other"
cp -r "$recipes/." "$scratch/other/"
ok "bake it elsewhere" env -C "$scratch/other" PARBAKE_HOME="$scratch/home" TZ=Asia/Tokyo LC_ALL=C \
	bash -c 'umask 077; timeout 900 "$0" bake ./tiny.ini' "$parbake"
is "$(PARBAKE_HOME=$scratch/home config tiny | field disk_raw_digest)" "$first" "a bake in another home has the same root disk"
rm -rf "$scratch/home"

# failures: a clear error, a status, the old version intact, no litter
before=$(listing)
fails() { # NAME PATTERN RECIPE-TEXT
	printf '%s\n' "$3" >"$scratch/other/tiny.ini"
	not_ok "$1 fails the bake" timeout 600 "$parbake" bake "$scratch/other/tiny.ini"
	like "$(cat "$scratch/err")" "$2" "$1: the error tells"
	is "$(listing | grep -v -f <(cut -d' ' -f1 <<<"$before"))" "" "$1: nothing was published"
	is "$(litter)" "" "$1: no litter"
}

# --json: each line is JSON, the error is one of them, and nothing of a step reaches a terminal unseen
cp "$tiny" "$scratch/json.ini"
cp "$recipes/motd.txt" "$scratch/"
cat >>"$scratch/json.ini" <<'EOF'
[install]
70 = printf 'crlf\r\n\033[2J\302\233m\377 bar 1\rbar 2\303\251\n'; exit 3
EOF
sed -i 's/^name = .*/name = json/' "$scratch/json.ini"
not_ok "bake --json of a step that fails" timeout 600 "$parbake" bake "$scratch/json.ini" --json
cp "$scratch/out" "$scratch/events"
like "$(tail -n 1 "$scratch/events")" '"event":"error".*exit status 3' "the last event of a bake that fails is the error"
is "$(python3 -c 'import json, sys
for line in sys.stdin:
    text = json.loads(line).get("text", "")
    if "70: " in text and "error" not in line: print(text.split("70: ")[1])' <"$scratch/events" | tr '\n' '|')" \
	'crlf|bar 2é|' "lines come as a terminal would show them"
is "$(LC_ALL=C tr -d '\n\t -~\303\251' <"$scratch/err" | wc -c)" 0 "an error's text has no control characters"
recipe=$(cat "$tiny")
fails "a failing install step" "exit status 1" "$recipe
[install]
50 = false | cat; echo said-so; sh -c 'exit 3'; true"
like "$(cat "$scratch/err")" "tiny.ini:[0-9]+" "the error names file and line"
fails "a service that dies" "go on running has ended: exit status 3" "${recipe/exec sleep infinity/exit 3}"
fails "an account of SDKs that is not there" "\[start\] user = none: .*no such user" "$(sed 's/^ready = .*/&\nuser = none/' <<<"$recipe")"
fails "a typo in a key" "memroy.*memory" "$(sed 's/^memory/memroy/' <<<"$recipe")"
fails "a bad size" "tiny.ini:[0-9]+.*4X" "$(sed 's/^memory *=.*/memory = 4X/' <<<"$recipe")"
fails "a disk too small" "needed|at least" "$(sed 's/^disk *=.*/disk = 16M/' <<<"$recipe")"
fails "a disk that fills up while installing" "No space left" "$recipe
[install]
51 = dd if=/dev/zero of=/fill bs=1M"

printf 'x' >"$scratch/other/evil"
tar -C "$scratch/other" -cf "$scratch/other/evil.tar" --transform 's,evil,../../evil,' -P evil
sum=$(sha256sum "$scratch/other/evil.tar" | cut -d' ' -f1)
tar_recipe() { printf '[template]\nname = tiny\n[machine]\nmemory = 128M\ndisk = 64M\n[root]\nsource = tar\npath = evil.tar\nsha256 = %s\n' "$1"; }
fails "a tar with ../" "\.\./" "$(tar_recipe "$sum")"
fails "a wrong sha256" "differs|sha256" "$(tar_recipe "$(printf '0%.0s' {1..64})")"

# a full store: the old version stays, and the next try works
mkdir "$scratch/full"
if mount -t tmpfs -o size=24m tmpfs "$scratch/full" 2>/dev/null; then
	not_ok "a full disk under the store fails the bake" env timeout 600 "$parbake" bake "$tiny" \
		--store "$scratch/full" --force --from-stage guest
	like "$(cat "$scratch/err")" "No space left" "a full disk: the error tells"
	is "$(find "$scratch/full" -name '.tmp-*' | wc -l)" 0 "a full disk: no litter"
	umount "$scratch/full"
else
	skip "a full disk under the store" "tmpfs cannot be mounted here"
fi

# killed in the middle: nothing of it is left running, the old version stays
"$parbake" bake "$tiny" --force --from-stage guest >/dev/null 2>&1 &
pid=$!
ok "a bake's machine starts" await 120 eval "monitors $pid"
qemu=$(monitors $pid)
kill -9 $pid
wait $pid 2>/dev/null
ok "kill -9 of a bake takes its machine along" await 2 gone "${qemu:-1}"
ok "the old version is whole" "$parbake" verify tiny
ok "the bake after a killed one works" timeout 900 "$parbake" bake "$tiny" --force --from-stage guest
finish
