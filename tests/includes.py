#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may include whom: includes.py [TREE].

Reads every `#include "…"` of the product's sources and prints a line for each that breaks a rule; the exit
status is 1 where there is one. The rules:

- a folder includes what MAY lists for it, and nothing else of the project;
- MAY has no cycle, so neither have the folders;
- a header that ends in _private.h is for the files of its own folder;
- headers do not include each other in a circle.
"""
import os
import re
import sys

# folder: the folders (or single headers) whose headers its files may include, beside its own
MAY = {
    "common": [],
    "agent": [],
    "store": ["common"],
    "vmm/guest": ["common", "agent/proto.h", "egress"],
    "vmm": ["common", "store", "vmm/guest"],
    "vmm/qemu": ["common", "vmm"],
    "vmm/kvm": ["common", "vmm"],
    "vmm/kvm/program": ["common", "vmm/kvm/control.h", "vmm/qcow2.h"],
    "egress": ["common"],
    "restore/pager": ["common", "store"],
    "restore": ["common", "store", "vmm", "vmm/guest", "restore/pager"],
    "bake/ext4": ["common"],
    "bake/fetch": ["common"],
    "bake/recipe": ["common", "store", "egress", "bake/fetch"],
    "bake/scan": ["common", "store", "bake/ext4"],
    "bake/plan": ["common", "bake/recipe"],
    "bake/source": ["common", "bake/ext4", "bake/fetch", "bake/recipe", "bake/plan"],
    "bake": ["common", "store", "vmm", "vmm/guest", "egress", "restore", "restore/pager", "bake/ext4",
             "bake/recipe", "bake/plan", "bake/scan", "bake/source"],
    "pool/http": ["common"],
    "pool/relay": ["common", "vmm/guest", "pool/http"],
    "pool/envd": ["common", "vmm/guest", "pool/http"],
    "pool/keeper": ["common", "store", "vmm", "restore"],
    "pool": ["common", "store", "vmm/guest", "restore", "egress", "pool/keeper"],
    "pool/api": ["common", "egress", "pool", "pool/http", "pool/relay", "pool/envd"],
    "pool/daemon": ["common", "pool", "pool/http", "pool/api"],
    "benches": ["common", "store", "vmm", "vmm/guest", "vmm/kvm", "restore", "restore/pager"],
    "benches/gate": ["benches"],
    "benches/peers": ["common", "store", "vmm", "restore", "benches", "restore/sandbox_private.h"],
    "prove": ["common", "store", "vmm", "restore", "bake", "bake/ext4", "bake/recipe", "bake/plan"],
    "cli": ["common", "store", "vmm", "vmm/guest", "restore", "restore/pager", "bake", "bake/recipe", "bake/plan", "prove", "pool",
            "pool/keeper", "pool/daemon", "benches", "vmm/kvm"],
}
# compiled inside QEMU, with QEMU's headers: no part of the tree's order
LEFT_OUT = ("vmm/qemu/trimmed",)
ROOTS = sorted({folder.split("/")[0] for folder in MAY})


def sources(tree):
    for root in ROOTS:
        for folder, _, names in os.walk(os.path.join(tree, root)):
            folder = os.path.relpath(folder, tree)
            if folder.startswith(LEFT_OUT):
                continue
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    yield folder, os.path.join(folder, name)


def circle(edges, what):
    """The first circle in {node: [nodes]}, as a sentence."""
    state = {}

    def visit(node, path):
        state[node] = 1
        for other in edges.get(node, ()):
            if state.get(other) == 1:
                return " → ".join(path[path.index(other):] + [other])
            if other not in state:
                found = visit(other, path + [other])
                if found:
                    return found
        state[node] = 2
        return None

    for node in sorted(edges):
        if node not in state:
            found = visit(node, [node])
            if found:
                return [f"{what} go in a circle: {found}"]
    return []


def check(tree):
    wrong = circle({folder: [w for w in may if not w.endswith(".h")] for folder, may in MAY.items()},
                   "the rules of tests/includes.py")
    headers = {}
    for folder, path in sources(tree):
        if folder not in MAY:
            wrong.append(f"{path}: tests/includes.py does not say what {folder}/ may include")
            continue
        with open(os.path.join(tree, path), encoding="utf-8", errors="replace") as file:
            includes = re.findall(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', file.read(), re.M)
        if path.endswith(".h"):
            headers[path] = includes
        for include in includes:
            home = os.path.dirname(include)
            if not os.path.exists(os.path.join(tree, include)):
                wrong.append(f"{path} includes {include}, which is not there")
            elif home == folder or include in MAY[folder]:
                continue
            elif include.endswith("_private.h"):
                wrong.append(f"{path} includes {include}, which is private to {home}/")
            elif home not in MAY[folder]:
                wrong.append(f"{path} includes {include}; {folder}/ may include: "
                             f"{', '.join(MAY[folder]) or 'nothing but its own'}")
    return wrong + circle(headers, "headers")


if __name__ == "__main__":
    found = check(sys.argv[1] if len(sys.argv) > 1 else ".")
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)
