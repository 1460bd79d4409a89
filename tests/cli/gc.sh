#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# parbake gc and the cache: what no template needs and nobody has used lately goes, nothing else.
. "$(dirname "$0")/../lib.sh"
export PARBAKE_HOME=$scratch/home
cache=$PARBAKE_HOME/cache
mkdir -p -m 700 "$PARBAKE_HOME"/store/blobs/sha256 "$cache"/{disks,stages,downloads/{sha256,partial}}
echo '{"imageLayoutVersion":"1.0.0"}' >"$PARBAKE_HOME/store/oci-layout"
echo '{"schemaVersion":2,"manifests":[]}' >"$PARBAKE_HOME/store/index.json"
old=$(printf '1%.0s' {1..64}) new=$(printf '2%.0s' {1..64})
for key in "$old" "$new"; do
	for f in "disks/$key" "stages/root-$key.ext4" "stages/root-$key.json" "stages/source-$key.tar" \
		"downloads/sha256/$key" "downloads/partial/$key.part"; do
		echo x >"$cache/$f"
		[ "$key" = "$new" ] || touch -d '2 days ago' "$cache/$f"
	done
done
for f in disks/.lock-1 stages/root-11.lock monitor.json "disks/${old%1}" disks/README; do
	echo x >"$cache/$f"
	touch -d '2 days ago' "$cache/$f"
done
mkdir "$cache/disks/$(printf '3%.0s' {1..64})"
touch -d '2 days ago' "$cache/disks"/3*
files() { (cd "$cache" && find . -mindepth 1 | sort); }

before=$(files)
like "$("$parbake" gc --dry-run)" "would remove 0 blobs, 0 B; 6 files of the cache" "gc --dry-run tells"
is "$(files)" "$before" "a dry run removes nothing"
ok "gc" "$parbake" gc
is "$(files)" "$(grep -v "[/-]$old" <<<"$before")" "what is old and not needed is gone, all else is there"
like "$("$parbake" gc --keep-cache 0 --json)" '"cache_files":6' "--keep-cache 0 takes what is new, too"
is "$(files | grep -c "$new")" 0 "a file that nobody needs is gone"
ok "--keep-versions" "$parbake" gc --keep-versions 3
not_ok "--keep-versions and no number" "$parbake" gc --keep-versions some
not_ok "--keep-cache and no duration" "$parbake" gc --keep-cache soon
finish
