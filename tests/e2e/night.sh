#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# README.md's "Reproducible in CI", its shell lines as they stand there. The mirror is a program of this test's own that
# gives what was saved of tiny's packages; at night one package is another version, and one has left it.
. "$(dirname "$0")/lib.sh"
bake "$recipes/tiny.ini"
ok "what the mirror has" timeout 600 "$parbake" fetch "$recipes/tiny.ini" --into "$scratch/saved"
mkdir -m 700 "$scratch/home"
mkdir "$scratch/bin" "$scratch/ci" "$scratch/ci/recipes" "$scratch/other"
export PARBAKE_HOME=$scratch/home MIRROR=$scratch/today.tar
mv "$scratch"/saved/*.tar "$MIRROR"
cat >"$scratch/bin/mmdebstrap" <<'X'
#!/bin/sh
case "$*" in *--version*) echo "mmdebstrap 1" ;; *) exec cat "$MIRROR" ;; esac
X
ln -s "$parbake" "$scratch/bin/parbake"
chmod 755 "$scratch/bin/mmdebstrap"
export PATH=$scratch/bin:$PATH
like_tiny analytics '' >"$scratch/ci/recipes/analytics.ini"

# the section's blocks, each one script
awk -v dir="$scratch" '/^## /{on = $0 == "## Reproducible in CI"; next}
	on && /^    /{if (!in_block) n++; in_block = 1; print substr($0, 5) >(dir "/block" n ".sh"); next} {in_block = 0}' "$top/README.md"
is "$(cat "$scratch"/block*.sh | wc -l)" 6 "README has its lines"
cd "$scratch/ci" || exit 1
ok "a lock is made" timeout 900 bash -ex "$scratch/block1.sh"
ok "of what the mirror has" grep -q "^debian bash:amd64 " recipes/analytics.lock
ok "CI bakes what was locked" timeout 900 bash -ex "$scratch/block2.sh"
like "$(cat "$scratch/out")" "restored, and its check passed" "verify --boot proves that a template works"
ok "the bill of materials names what is in the template" grep -q "pkg:deb/debian/bash@" analytics.cdx.json

# the night after: bash has another version, and dash is gone
mkdir -p "$scratch/other/var/lib/dpkg"
tar -xOf "$MIRROR" ./var/lib/dpkg/status |
	awk -v RS= -v ORS='\n\n' '/^Package: dash\n/{next} /^Package: bash\n/{sub(/\nVersion: [^\n]*/, "\nVersion: 99.1")} {print}' >"$scratch/other/var/lib/dpkg/status"
tar -C "$scratch/other" --owner=0 --group=0 -rf "$MIRROR" ./var/lib/dpkg/status
ok "at night it is baked from what the mirror has then" timeout 900 bash -ex "$scratch/block3.sh"
like "$(cat "$scratch/out")" "~ debian bash 5.* → 99.1" "what changed is told"
like "$(cat "$scratch/out")" "- debian dash " "and what is gone"
like "$(cat night.html)" "<td>bash</td><td>5[^<]*</td><td>99.1</td>" "on a page, too"
timeout 900 "$parbake" bake --locked --from-stage source recipes/analytics.ini >"$scratch/out" 2>"$scratch/err"
is $? 3 "what was locked is not there any more: the status is 3"
like "$(cat "$scratch/err")" "^debian dash:amd64: locked as [^ ]+ .*, not here$" "the package that left is named"
like "$(cat "$scratch/err")" "^debian bash:amd64: locked as [^ ]+ .*, here it is 99.1 " "and the one that is another"
finish
