#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What machines run with is decided by trying, told in one word to programs and in a sentence to people, and is
# emulation wherever KVM cannot be used.
. "$(dirname "$0")/../e2e/lib.sh"

found=$(doctor accelerator value)
like "$found" '^(kvm|tcg)$' "doctor names the accelerator in one word ($found)"
like "$("$parbake" doctor)" "^(good|worse) +accelerator +$found( works|: machines are emulated, since .+)$" \
	"and in a sentence that says why"
is "$(PARBAKE_ACCEL=tcg doctor accelerator value)" tcg "emulation can be asked for on any host"
if [ "$found" = kvm ]; then
	is "$(PARBAKE_ACCEL=kvm doctor accelerator value)" kvm "KVM can be asked for where it works"
else
	not_ok "KVM that does not work is refused" env PARBAKE_ACCEL=kvm timeout 120 "$parbake" bake "$recipes/tiny.ini"
	like "$(cat "$scratch/err")" "PARBAKE_ACCEL=kvm, but KVM does not work here: .+" "the error says why KVM does not work"
	is "$(PARBAKE_ACCEL=kvm doctor accelerator verdict)" bad "doctor says so, too"
fi

# without the device, which a container may well not have
hidden() { unshare -m sh -c '[ ! -e /dev/kvm ] || mount --bind /dev/null /dev/kvm; exec "$@"' sh "$@"; }
if hidden true 2>/dev/null; then
	is "$(hidden "$parbake" doctor --json | grep -o '"value":"[a-z]*"')" '"value":"tcg"' "machines are emulated where /dev/kvm is not there"
	is "$(PARBAKE_HOME=$scratch/fresh hidden "$parbake" doctor --json | grep -o '"value":"[a-z]*"')" '"value":"tcg"' \
		"on a host that nothing is known of, too"
fi

ok "a bake" timeout 1200 "$parbake" bake "$recipes/tiny.ini" --force --from-stage guest
like "$(cat "$scratch/out" "$scratch/err")" "accelerator: ($found works|$found: machines are emulated, since .+)" \
	"says in its first lines what it is made with, and why"
is "$("$parbake" inspect tiny --config | grep -o '"accel": "[a-z]*"')" "\"accel\": \"$found\"" "a template is made with the accelerator that was found"
finish
