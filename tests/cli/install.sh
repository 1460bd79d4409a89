#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What `make install` puts away is whole, and works wherever it lies.
. "$(dirname "$0")/../lib.sh"
export PARBAKE_HOME=$scratch/home
unset PARBAKE_KERNEL PARBAKE_LIBDIR PARBAKE_TEMPLATES PARBAKE
tree="$scratch/in st"

ok "make install" make -C "$top" --no-print-directory install DESTDIR="$scratch/inst" PREFIX=/usr
like "$(cat "$scratch/inst/usr/lib/systemd/system/parbake-pool.service")" "^ExecStart=/usr/bin/parbake pool serve$" "the unit"
is "$(stat -c %a "$scratch/inst/etc/parbake/pool.conf")" 600 "an example configuration"
echo "# mine" >"$scratch/inst/etc/parbake/pool.conf"
ok "again" make -C "$top" --no-print-directory install DESTDIR="$scratch/inst" PREFIX=/usr
is "$(cat "$scratch/inst/etc/parbake/pool.conf")" "# mine" "the operator's configuration stays"
mv "$scratch/inst/usr" "$tree"
cd / || exit 1
ok "doctor" "$tree/bin/parbake" doctor
for part in preload agent kernel; do
	like "$(cat "$scratch/out")" "^good +$part +$tree/" "it finds the $part in that tree"
done
not_ok "one that did not is not" "$tree/bin/parbake" bake no-such-recipe
like "$(cat "$scratch/err")" "no-such-recipe" "and named"
for to in bash-completion/completions/parbake zsh/site-functions/_parbake fish/vendor_completions.d/parbake.fish; do
	ok "the script of completion for ${to%%[-/]*} lies where that shell looks for it" \
		cmp "$tree/share/$to" <("$tree/bin/parbake" completion "${to%%[-/]*}")
done
for page in "$tree"/share/man/man?/*; do
	is "$(man --warnings -l "$page" 2>&1 >/dev/null)" "" "$(basename "$page") is a page without warnings"
done
finish
