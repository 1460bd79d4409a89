#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The shell lines of an example of docs/ci, as the service would run them: ci_lines.py FILE DIRECTORY.

Writes one script a step (GitHub) or one in all (GitLab) as DIRECTORY/NN.sh; prints `key value` of each `uses:`, `key:`,
`permissions` and `timeout` found, for the test to look at. Reads the two files' own YAML: block scalars and lists.
"""
import re
import sys

lines = open(sys.argv[1], encoding="utf-8").read().split("\n")
scripts, at = [], 0


def indent(line):
    return len(line) - len(line.lstrip(" "))


while at < len(lines):
    line = lines[at]
    bare = line.strip()
    at += 1
    found = re.match(r"(?:- )?(uses|key|contents|timeout|timeout-minutes|permissions): *(.*)", bare)
    if found:
        print(found.group(1), found.group(2))
    if bare in ("run: |", "- run: |"):
        block = []
        while at < len(lines) and (not lines[at].strip() or indent(lines[at]) > indent(line)):
            block.append(lines[at])
            at += 1
        least = min(indent(one) for one in block if one.strip())
        scripts.append("\n".join(one[least:] for one in block))
    elif bare.startswith("run: "):
        scripts.append(bare[len("run: "):])
    elif bare in ("before_script:", "script:"):
        if bare == "before_script:":
            scripts.append("")
        while at < len(lines) and indent(lines[at]) > indent(line):
            one = lines[at].strip()
            if one.startswith("- "):
                assert ": " not in one and not one[2:].startswith(("{", "[", "&", "*", "!", "%", "@", "`", '"')), one
                scripts[-1] += one[2:] + "\n"
            else:
                assert one.startswith("#"), one
            at += 1
assert scripts, "no scripts"
for number, script in enumerate(scripts):
    assert "${{" not in script, "an expression inside a script: " + script
    with open("%s/%02d.sh" % (sys.argv[2], number), "w", encoding="utf-8") as f:
        f.write(script + "\n")
