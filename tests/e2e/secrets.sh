#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the host lends the guest while it installs (pip's index with its password, the CA bundle, [secrets]) is neither
# in the snapshot's memory nor on its disk, nor in what the bake prints; and a recipe that keeps it is not published.
. "$(dirname "$0")/lib.sh"
mkdir "$scratch/r"
cp -r "$recipes/." "$scratch/r/"
# the steps' own text, which is not lent, has no marker in it
cat >"$scratch/r/lent.ini" <<EOF
[template]
from = tiny
[network]
allow = example.org
[secrets]
TOKEN = env:PARBAKE_TEST_TOKEN
KEY = file:key.txt
[install]
69 = echo "printed: \$TOKEN"; test "\$KEY" = "\$(printf 'key-marke%s\nsecond line' r-zq85-q7h2ke9x0vbn4t)"
70 = test -s "\$SSL_CERT_FILE" && grep -q "ca-marke[r]-zq81" "\$SSL_CERT_FILE"
71 = case "\$PIP_INDEX_URL" in *pass-marke[r]-zq82*) ;; *) exit 9 ;; esac
72 = echo "kept-marker-\$((80 + 3))" >/etc/kept
EOF
{ for i in $(seq 4000); do echo "# ca-marker-zq81 $i"; done; cat /etc/ssl/certs/ca-certificates.crt; \
	for i in $(seq 4000); do echo "# ca-marker-zq81 $i"; done; } >"$scratch/ca.pem"
printf 'key-marker-zq85-q7h2ke9x0vbn4t\nsecond line\n' >"$scratch/r/key.txt"
export PARBAKE_TEST_TOKEN=token-marker-zq84-0123456789
export PIP_CERT=$scratch/ca.pem PIP_INDEX_URL=https://user:pass-marker-zq82@index.example.org/simple
ok "bake with a lent index and CA bundle" timeout 900 "$parbake" bake --from-stage guest "$scratch/r/lent.ini"
like "$(cat "$scratch/out" "$scratch/err")" "printed: [*]+" "a secret that a step prints is masked"
like "$(cat "$scratch/out" "$scratch/err")" "searched for [0-9]+ pieces" "what was searched is told"
ok "the config says in how many pieces" test "$("$parbake" inspect lent --config | grep -c '"pieces"')" = 1
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
	is "$(count "$image" token-marker-zq84)" 0 "$image: nothing of a secret from the environment"
	is "$(count "$image" key-marker-zq85)" 0 "$image: nothing of a secret from a file"
done
is "$(count disk-delta kept-marker-83)" 1 "what a step wrote is found the same way"
ok "no file of it is left" timeout 60 "$parbake" run lent --shell '! ls /run/parbake-bake 2>/dev/null'

# Canaries: each secret is kept in another way, and the one bake that keeps them all names each of them. A line is
# WAY|what is said of the place|a step. Those without a place are gone by themselves: processes of a step end with it.
# The kernel has no swap, so what a tmpfs holds never gets to a disk; a file that was made for swap is one like others.
# The removed file is the last: no later one is given its block.
canaries() {
	cat <<'EOF'
ENVIRONMENT||env -i CANARY="$ENVIRONMENT" setsid sleep 1000 >/dev/null 2>&1 </dev/null &
ARGUMENT||env -i setsid sh -c 'sleep 1000; :' "$ARGUMENT" >/dev/null 2>&1 </dev/null &
TMPFS|in memory|echo "$TMPFS" >/run/kept
ENDED||grep -q canary <<<"$ENDED"; (echo "$ENDED" >/run/ended; cat /run/ended >/dev/null; rm /run/ended)
NAME_IN_MEMORY|in memory|touch "/run/$NAME_IN_MEMORY"
SLAB|in memory|echo "$SLAB" >/sys/class/net/lo/ifalias
PAGE_CACHE|in memory|echo "$PAGE_CACHE" >/run/held
SWAP|: /var/swap$|test ! -e /proc/swaps; { head -c 100000 /dev/zero; echo "$SWAP"; } >/var/swap
JOURNAL|: /var/log/journal/m/system.journal$|mkdir -p /var/log/journal/m; { printf LPKSHHRH; head -c 5000 /dev/urandom; echo "MESSAGE=$JOURNAL"; } >/var/log/journal/m/system.journal
FILE|: /etc/kept-file$|echo "$FILE" >/etc/kept-file
HISTORY|: /root/.bash_history$|echo "curl -H 'Authorization: $HISTORY'" >>/root/.bash_history
PIP_CACHE|: /root/.cache/pip/http/a/b$|mkdir -p /root/.cache/pip/http/a; echo "$PIP_CACHE" >/root/.cache/pip/http/a/b
CORE|: /var/crash/core$|mkdir -p /var/crash; { head -c 300000 /proc/self/exe; echo "$CORE"; } >/var/crash/core
DIRECTORY|: /srv/names$|mkdir -p /srv/names; touch /srv/names/keep "/srv/names/$DIRECTORY"
REMOVED|a free block, of a file that was removed$|echo "$REMOVED" >/etc/removed; sync; rm /etc/removed
EOF
}
{
	printf '[template]\nfrom = tiny\n[secrets]\n'
	canaries | while IFS='|' read -r way _; do echo "$way = env:PARBAKE_CANARY_$way"; done
	echo '[install]'
	canaries | cat -n | while IFS='|' read -r head _ step; do echo "${head%%[A-Z]*} = $step"; done | sed 's/^ *//; s/\t//'
	# a removed file that a process holds open: nothing but the page cache has it
	printf '[start]\ncommand = exec 9</run/held; rm /run/held; echo started >/run/tiny-started; exec sleep infinity\n'
} >"$scratch/r/canary.ini"
while IFS='|' read -r way _; do
	export "PARBAKE_CANARY_$way=canary-$(head -c 12 /dev/urandom | od -An -tx1 | tr -d ' \n')"
done < <(canaries)
before=$(find "$PARBAKE_HOME/store/blobs" -type f | sort)
not_ok "a bake whose steps keep secrets" timeout 900 "$parbake" bake --from-stage guest "$scratch/r/canary.ini"
cp "$scratch/err" "$scratch/refused"
while IFS='|' read -r way place _; do
	if [ "$place" ]; then
		like "$(grep "the secret $way," "$scratch/refused")" "$place" "$way: it is found, and the place is told"
	else
		unlike "$(cat "$scratch/refused")" "the secret $way," "$way: nothing of it is left"
	fi
done < <(canaries)
unlike "$(cat "$scratch/refused")" "canary-[0-9a-f]" "no secret is shown"
is "$(find "$PARBAKE_HOME/store/blobs" -type f | sort)" "$before" "nothing of it is in the store"
not_ok "a template that leaks gets no name" "$parbake" inspect canary
env -u PARBAKE_CANARY_FILE timeout 60 "$parbake" bake "$scratch/r/canary.ini" 2>"$scratch/unset"
like "$(cat "$scratch/unset")" "PARBAKE_CANARY_FILE is not set" "a secret that is not there is an error"
finish
