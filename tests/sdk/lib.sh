# SPDX-License-Identifier: Apache-2.0
# What the tests of SDKs share: where fetched packages are kept, and a pool that answers over TCP.
# shellcheck shell=bash
. "$(dirname "${BASH_SOURCE[0]}")/../e2e/lib.sh"

cache=$top/build/sdk
mkdir -p "$cache"

# venv NAME ARGUMENT…: build/sdk/NAME has a Python with what pip installs by these arguments
venv() {
	local dir=$cache/$1
	shift
	[ -e "$dir/ready" ] || { rm -rf "$dir" && python3 -m venv "$dir" &&
		"$dir/bin/pip" install -q --disable-pip-version-check "$@" && touch "$dir/ready"; } >"$scratch/fetch" 2>&1
}

# modules NAME PACKAGE…: build/sdk/NAME has what npm installs by these; node too, where the host's is too old for E2B's packages
modules() {
	local dir=$cache/$1
	shift
	[ -e "$dir/ready" ] || { rm -rf "$dir" && mkdir -p "$dir" &&
		(cd "$dir" && npm init -y && npm install --no-audit --no-fund "$@" $node_too) && touch "$dir/ready"; } >"$scratch/fetch" 2>&1
}
node_too=
node --version 2>/dev/null | grep -Eq '^v(20\.(1[89]|[2-9][0-9])|2[2-9]|[3-9][0-9])\.?' || node_too=node@22

answers() { curl -sf --unix-socket "$scratch/sock" http://localhost/readyz; }

# serve TEMPLATE SPARES: a pool with a key; the variables by which E2B's packages find both are set
serve() {
	own_run
	port=$(python3 -c 'import socket
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    print(s.getsockname()[1])')
	"$parbake" pool key tests >"$scratch/key"
	cat >"$scratch/conf" <<-END
		[pool]
		socket = $scratch/sock
		state = $scratch/state
		listen = 127.0.0.1:$port
		domain = boxes.example.org
		[template $1]
		spares = $2
		standbys = 1
		$(sed -n '/^\[key/,$p' "$scratch/key")
	END
	"$parbake" pool serve --config "$scratch/conf" 2>"$scratch/log" &
	daemon=$!
	trap 'ended' EXIT
	key=$(grep -o 'e2b_[0-9a-f]*' "$scratch/key")
	export E2B_API_URL=http://127.0.0.1:$port E2B_SANDBOX_URL=http://127.0.0.1:$port E2B_DOMAIN=boxes.example.org
	export E2B_API_KEY=$key E2B_HTTP_VERSION=1.1
	ok "a pool is ready" await 120 answers
}

# ended: what a test leaves when it ends; what else it started is its own to add to $others
others=''
ended() {
	PARBAKE_API=unix:$scratch/sock "$parbake" kill --all
	# shellcheck disable=SC2086 # a list of words
	kill $daemon $others
	wait $daemon
	rm -rf "$scratch"
} >/dev/null 2>&1
