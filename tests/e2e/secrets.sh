#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the host lends the guest while it installs (pip's index with its password, the CA bundle) is neither in
# the snapshot's memory nor on its disk, nor in what the bake prints.
. "$(dirname "$0")/lib.sh"
mkdir "$scratch/r"
cp -r "$recipes/." "$scratch/r/"
# the steps' own text, which is not lent, has no marker in it
cat >"$scratch/r/lent.ini" <<EOF
[template]
from = tiny
[network]
allow = example.org
[install]
70 = test -s "\$SSL_CERT_FILE" && grep -q "ca-marke[r]-zq81" "\$SSL_CERT_FILE"
71 = case "\$PIP_INDEX_URL" in *pass-marke[r]-zq82*) ;; *) exit 9 ;; esac
72 = echo "kept-marker-\$((80 + 3))" >/etc/kept
EOF
{ for i in $(seq 4000); do echo "# ca-marker-zq81 $i"; done; cat /etc/ssl/certs/ca-certificates.crt; \
	for i in $(seq 4000); do echo "# ca-marker-zq81 $i"; done; } >"$scratch/ca.pem"
export PIP_CERT=$scratch/ca.pem PIP_INDEX_URL=https://user:pass-marker-zq82@index.example.org/simple
ok "bake with a lent index and CA bundle" timeout 900 "$parbake" bake --from-stage guest "$scratch/r/lent.ini"
is "$(grep -c 'marker-zq' "$scratch/out" "$scratch/err" | awk -F: "{ n += \$2 } END { print n }")" 0 "nothing of them is printed"
unset PIP_CERT PIP_INDEX_URL

count() { # MEDIA-PART PATTERN: how often it is in the image
	"$parbake" inspect lent | python3 -c 'import json,sys
for l in json.load(sys.stdin)["layers"]:
    if sys.argv[1] in l["mediaType"]: print(l["digest"].replace("sha256:","blobs/sha256/"))' "$1" |
		while read -r blob; do zstd -dc "$PARBAKE_HOME/store/$blob" | grep -aoc "$2"; done
}
for image in memory.v1 disk-delta; do
	is "$(count "$image" ca-marker-zq81)" 0 "$image: nothing of the CA bundle"
	is "$(count "$image" pass-marker-zq82)" 0 "$image: nothing of the index's password"
done
is "$(count disk-delta kept-marker-83)" 1 "what a step wrote is found the same way"
ok "no file of it is left" timeout 60 "$parbake" run lent --shell '! ls /run/parbake-bake 2>/dev/null'
finish
