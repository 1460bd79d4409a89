#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the product has and does not use: unused.py [TREE [BUILD]].

Reads the symbols of the product's object files in BUILD and the sources of TREE, and prints a line for each that
breaks a rule; the exit status is 1 where there is one. The rules:

- a function or variable that no other file of the product uses is static;
- or tests use it beside its own file: a parser that they feed with text, say;
- what only tests use is in tests, and what nobody uses is nowhere;
- a macro or a function that a header declares is used or defined somewhere.
"""
import collections
import os
import re
import subprocess
import sys

# used by name by something that is neither a source nor a test
KNOWN = {
    "main": "the C library calls it",
    "__wrap_free": "the linker puts it in the place of free(), see AGENT_CFLAGS in the Makefile",
    "__wrap_realloc": "the same for realloc()",
}
NO_CODE = re.compile(r"/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.S)


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return NO_CODE.sub(" ", file.read())


def sources(tree):
    """The texts of the product's and the tests' files, by path, without comments and strings."""
    product, tests = {}, {}
    for folder, below, names in os.walk(tree):
        at = os.path.relpath(folder, tree)
        below[:] = [d for d in below if not (at == "." and d.startswith(("build", ".")))]
        if at.startswith("vmm/qemu/trimmed"):
            continue
        for name in names:
            if name.endswith((".c", ".h")):
                path = os.path.normpath(os.path.join(at, name))
                (tests if path.startswith("tests/") else product)[path] = read(os.path.join(tree, path))
    return product, tests


def symbols(product, build):
    """{name: files that define it}, {name: files that refer to it}, by the object files of the product."""
    objects = {}
    for path in product:
        for of in ("", "guest", "static"):
            found = os.path.join(build, of, path[:-2] + ".o")
            if path.endswith(".c") and os.path.exists(found):
                objects[found] = path
    defined, used = collections.defaultdict(set), collections.defaultdict(set)
    listing = subprocess.run(["nm", "-A", "-g", *objects], check=True, capture_output=True, text=True).stdout
    for line in listing.splitlines():
        where, kind, name = re.match(r"(.*?):\s*[0-9a-f]* +(\w) (\S+)", line).groups()
        (used if kind == "U" else defined)[name].add(objects[where])
    return defined, used


def words(texts):
    count = collections.Counter()
    for text in texts:
        count.update(re.findall(r"[A-Za-z_]\w*", text))
    return count


def check(tree, build):
    wrong = []
    product, tests = sources(tree)
    in_product, in_tests = words(product.values()), words(tests.values())
    defined, used = symbols(product, build)
    # a destructor is referred to where its macro is used
    macros = " ".join(line for path, text in product.items() if path.endswith(".h")
                      for line in re.findall(r"^#define .*cleanup_with.*", text, re.M))
    for name in sorted(defined):
        home = sorted(defined[name])[0]
        if name in KNOWN or used[name] - defined[name] or re.search(rf"\b{name}\b", macros):
            continue
        own = len(re.findall(rf"\b{name}\b", product[home])) > 1
        if not own:
            wrong.append(f"{home}: {name} is used by {'tests alone' if in_tests[name] else 'nobody'}")
        elif not in_tests[name]:
            wrong.append(f"{home}: {name} is used by no other file and is not static")
    for path, text in sorted(product.items()):
        if not path.endswith(".h"):
            continue
        for name in re.findall(r"^#define (\w+)", text, re.M):
            if in_product[name] + in_tests[name] < 2:
                wrong.append(f"{path}: {name} is used by nobody")
        for name in re.findall(r"^[a-z].*?\b([a-z]\w*)\(.*;$", text, re.M):
            if in_product[name] < 2:
                wrong.append(f"{path}: {name} is declared and not there")
    return wrong


if __name__ == "__main__":
    top = sys.argv[1] if len(sys.argv) > 1 else "."
    found = check(top, sys.argv[2] if len(sys.argv) > 2 else os.path.join(top, "build"))
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)
