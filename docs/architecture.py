#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/architecture.svg from the rules in tests/includes.py: architecture.py [FILE].

A box is a folder at the top of the tree, with its parts named in it. Boxes lie in rows, so that every arrow points
down. Arrows that follow from others (a → c where a → b → c) are left out.
"""
import os
import sys

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TOP, "tests"))
from includes import MAY  # noqa: E402

WHAT = {
    "cli": "the parbake command", "benches": "measuring, comparing, reports", "pool": "many sandboxes: the daemon",
    "bake": "recipe → snapshot", "restore": "snapshot → sandbox", "egress": "a guest's way out",
    "vmm": "one machine, its monitor", "store": "snapshots at rest", "agent": "PID 1 of every guest",
    "prove": "what is in a version", "common": "knows nothing of parbake",
}
WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 230, 78, 34, 58, 24
STYLE = """text{font-family:system-ui,sans-serif;fill:#1b2733}.name{font-size:17px;font-weight:600}
.what{font-size:12.5px}.parts{font-size:11.5px;fill:#4a5b6b}rect{fill:#f4f7fa;stroke:#5b7083;stroke-width:1.2}
path{fill:none;stroke:#5b7083;stroke-width:1.3}#head path{fill:#5b7083;stroke:none}
@media(prefers-color-scheme:dark){text{fill:#e8edf2}.parts{fill:#a9b8c6}rect{fill:#1d2833;stroke:#7f95a8}
path{stroke:#7f95a8}#head path{fill:#7f95a8}}"""


def graph():
    edges = {}
    for folder, may in MAY.items():
        top = folder.split("/")[0]
        for other in may:
            if other.split("/")[0] != top:
                edges.setdefault(top, set()).add(other.split("/")[0])
        edges.setdefault(top, set())
    return edges


def reach(edges, node, without):
    seen, todo = set(), [o for o in edges[node] if o != without]
    while todo:
        other = todo.pop()
        if other not in seen:
            seen.add(other)
            todo.extend(edges[other])
    return seen


def rows(edges):
    depth = {}

    def of(node):
        if node not in depth:
            depth[node] = 1 + max((of(user) for user in edges if node in edges[user]), default=-1)
        return depth[node]

    out = [[] for _ in range(1 + max(of(node) for node in edges))]
    for node in sorted(edges):
        out[depth[node]].append(node)
    return out


def draw():
    edges = graph()
    lines = rows(edges)
    wide = max(len(line) for line in lines)
    total = 2 * MARGIN + wide * WIDTH + (wide - 1) * GAP_X
    at = {}
    for y, line in enumerate(lines):
        left = (total - len(line) * WIDTH - (len(line) - 1) * GAP_X) / 2
        for x, node in enumerate(line):
            at[node] = (left + x * (WIDTH + GAP_X), MARGIN + y * (HEIGHT + GAP_Y))
    high = 2 * MARGIN + len(lines) * HEIGHT + (len(lines) - 1) * GAP_Y
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total:g} {high:g}" role="img">',
           "<title>The folders of parbake and who may include whom</title>", f"<style>{STYLE}</style>",
           '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
           'orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>']
    for node in sorted(edges):
        for other in sorted(edges[node]):
            if other in reach(edges, node, other):
                continue
            (x1, y1), (x2, y2) = at[node], at[other]
            x1, y1, x2 = x1 + WIDTH / 2, y1 + HEIGHT, x2 + WIDTH / 2
            middle = (y2 - y1) / 2
            out.append(f'<path d="M{x1:g} {y1:g}C{x1:g} {y1 + middle:g} {x2:g} {y2 - middle:g} {x2:g} {y2 - 2:g}" '
                       'marker-end="url(#head)"/>')
    for node, (x, y) in sorted(at.items()):
        parts = " ".join(sorted(f.split("/", 1)[1] for f in MAY if f.startswith(node + "/")))
        out += [f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="7"/>',
                f'<text class="name" x="{x + 14:g}" y="{y + 26:g}">{node}/</text>',
                f'<text class="what" x="{x + 14:g}" y="{y + 46:g}">{WHAT[node]}</text>',
                f'<text class="parts" x="{x + 14:g}" y="{y + 65:g}">{parts}</text>']
    return "\n".join(out + ["</svg>", ""])


if __name__ == "__main__":
    text = draw()
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            file.write(text)
    else:
        sys.stdout.write(text)
