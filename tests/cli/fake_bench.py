#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A parbake whose creates are random numbers: `fake_bench.py bench create TEMPLATE -n N --mode M … --save FILE`.

FAKE_SLOWER=0.1   10 % slower; a template named "slow", or as FAKE_SLOW_TEMPLATE says, is too; --own-pager 50 %
FAKE_FAILS=0.2    that share of creates fails
FAKE_COST=0.1     10 % more processor time, page faults and system calls; FAKE_CALLS=0.1 more system calls alone
FAKE_BROKEN=1     no document at all, status 1
FAKE_SEED=FILE    a counter there is the seed, so that every run differs and every test is the same
FAKE_SLEEP=1      seconds that a run takes
"""
import json
import os
import random
import sys
import time

words = sys.argv[1:]
assert words[:2] == ["bench", "create"], words
template, n, modes, save = words[2], 100, [], None
args = iter(words[3:])
for word in args:
    if word == "-n":
        n = int(next(args))
    elif word == "--mode":
        modes.append(next(args))
    elif word == "--save":
        save = next(args)
    elif word in ("--boots", "--result"):
        next(args)
assert os.path.isdir(os.environ["PARBAKE_HOME"] + "/store/"), "no home of its own"
time.sleep(float(os.environ.get("FAKE_SLEEP", "0")))
if os.environ.get("FAKE_BROKEN"):
    sys.exit("parbake: it is broken")
seed = 0
if "FAKE_SEED" in os.environ:
    with open(os.environ["FAKE_SEED"], "a+") as f:
        f.write("x")
        f.flush()
        seed = f.tell()
r = random.Random(seed)
level = 1 + float(os.environ.get("FAKE_SLOWER", "0")) + (template in ("slow", os.environ.get("FAKE_SLOW_TEMPLATE"))) * 0.1 + ("--own-pager" in words) * 0.5
level *= r.lognormvariate(0, 0.01)
series = []
for mode in modes or ["cold", "standby", "spare"]:
    total, failed = [], 0
    for _ in range(n):
        if r.random() < float(os.environ.get("FAKE_FAILS", "0")):
            failed += 1
        else:
            total.append(int(1e7 * level * r.lognormvariate(0, 0.1)))
    more = 1 + float(os.environ.get("FAKE_COST", "0"))
    per = {"cpu_ns": 12e6 * more, "minor_faults": 1600 * more, "major_faults": 0,
           "system_calls": 930 * (more + float(os.environ.get("FAKE_CALLS", "0")))}
    costs = {k: [int(v * r.lognormvariate(0, 0.01)) for _ in total] for k, v in per.items()}
    one = {"name": mode, "costs": costs, "n": len(total), "failed": failed, "span_ns": 0, "total_ns": total, "at_ns": [0] * len(total)}
    if failed:
        one["first_error"] = "no luck"
    series.append(one)
document = {"format": 1, "parbake": "fake", "created": "2026-01-01T00:00:00Z", "host": {"cores": 2},
            "runs": [{"bench": "create", "id": "create " + template, "title": "Create " + template,
                      "facts": {"template": template, "digest": "sha256:" + template}, "series": series}]}
with open(save, "w") as f:
    json.dump(document, f)
sys.exit(1 if any(s["failed"] for s in series) else 0)
