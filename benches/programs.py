#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
One table of what emulated sandboxes take to start, to answer and to run programs.

    benches/programs.py N [BEFORE]     N samples of a series; BEFORE: the parbake of an earlier build

Both builds are measured in turn, with templates that each has baked itself: `base`, `code-interpreter` and one like
`base` with two processors. The earlier build's have the tag `before`.
"""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TWO = "[template]\nname = base-two\nfrom = base\n[machine]\nvcpus = 2\n"
PLOT = """import time
began = time.perf_counter()
import matplotlib.pyplot as plt
plt.plot([1, 2, 3], [4, 5, 6], label="a"); plt.title("first"); plt.legend(); plt.show()
open("/tmp/took", "w").write(str((time.perf_counter() - began) * 1000))"""

# what it is, of which measurement, of which series, the value, what is aimed at (ms)
ROWS = [
    ("cold create, answer", "create base", "cold", "p50", 7),
    ("  from a standby", "create base", "standby", "p50", 3),
    ("  from a spare", "create base", "spare", "p50", 0.5),
    ("  cold, two processors", "create base-two", "cold", "p50", 9),
    ("  50 at once, p99 / single × cores", "create base 50", "cold", "crowd", 45),
    ("cold create, first command's output", "create base exec", "cold", "p50", 20),
    ("/bin/true in a running sandbox", "exec base", "exec", "p50", 4),
    ("bash -lc true", "exec base", "bash", "p50", 25),
    ("python3 -c pass", "exec base", "python3", "p50", 50),
    ("cold create, first Python result", "create python", "cold", "p50", 18),
    ("  from a standby", "create python", "standby", "p50", 12),
    ("  from a spare", "create python", "spare", "p50", 6),
    ("first plot of a sandbox", "plot", "plot", "p50", 1200),
]
MEASUREMENTS = {
    "create base": ["create", "base", "--boots", "0"],
    "create base-two": ["create", "base-two", "--boots", "0", "--mode", "cold"],
    "create base 50": ["create", "base", "--boots", "0", "--mode", "cold", "--concurrency", "50"],
    "create base exec": ["create", "base", "--boots", "0", "--mode", "cold", "--result", "exec"],
    "exec base": ["exec", "base", "--mib", "1"],
    "create python": ["create", "code-interpreter", "--boots", "0", "--result", "python"],
}


class Build:
    def __init__(self, program, tag, scratch):
        self.program, self.tag, self.scratch = program, tag, scratch
        self.values = {}

    def run(self, *words):
        done = subprocess.run([self.program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            sys.exit(f"{self.program} {' '.join(words)}: {done.stderr.decode(errors='replace')[-600:]}")
        return done.stdout

    def bake(self, two):
        for recipe in "base", "code-interpreter", two:
            self.run("bake", recipe, "--tag", self.tag)

    def measure(self, name, n):
        words = list(MEASUREMENTS[name])
        words[1] += ":" + self.tag
        path = os.path.join(self.scratch, "measured.json")
        self.run("bench", *words, "-n", str(max(n, 50) if "50" in words else n), "--save", path)
        with open(path, encoding="utf-8") as f:
            series = json.load(f)["runs"][0]["series"]
        # a standby was called a shell
        self.values[name] = {"standby" if s["name"] == "shell" else s["name"]: s for s in series}

    def plot(self, n):
        took = []
        for _ in range(n):
            path = os.path.join(self.scratch, "took")
            self.run("run", "code-interpreter:" + self.tag, "--fetch", "/tmp/took:" + path, "--code", PLOT)
            with open(path, encoding="utf-8") as f:
                took.append(float(f.read()))
        self.values["plot"] = {"plot": {"p50_ns": sorted(took)[n // 2] * 1e6}}

    def value(self, measurement, series, kind):
        found = self.values.get(measurement, {}).get(series)
        if not found:
            return None
        if kind == "crowd":
            single = self.values["create base"]["cold"]["p50_ns"]
            return found["p99_ns"] / single * os.cpu_count()
        return found["p50_ns"] / 1e6


def text(value):
    return "–" if value is None else f"{value:.1f}"


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    n = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        two = os.path.join(scratch, "base-two.ini")
        with open(two, "w", encoding="utf-8") as f:
            f.write(TWO)
        builds = [Build(os.path.join(HERE, "parbake"), "latest", scratch)]
        if len(sys.argv) == 3:
            builds.insert(0, Build(os.path.abspath(sys.argv[2]), "before", scratch))
        for build in builds:
            build.bake(two)
        for name in MEASUREMENTS:
            for build in builds:
                build.measure(name, n)
        for build in builds:
            build.plot(max(3, n // 20))
    print(f"\n{'ms, p50':38}" + (f"{'before':>10}" if len(builds) > 1 else "") + f"{'now':>10}{'aim':>10}")
    for title, measurement, series, kind, aim in ROWS:
        values = [text(build.value(measurement, series, kind)) for build in builds]
        print(f"{title:38}" + "".join(f"{v:>10}" for v in values) + f"{aim:>10}")


if __name__ == "__main__":
    main()
