# SPDX-License-Identifier: Apache-2.0
"""pool_budget.py SCRATCH: creates until the memory budget is spent, of a template that has spares and of one that has none."""
import sys
from pool_lib import *

scratch = sys.argv[1]
tap = Tap()
d = Daemon(scratch, "memory_budget = 160M\nrefill_per_s = 50\n[template tiny]\nspares = 2\nstandbys = 0\n")


def configure(text):
    """Another configuration, taken by SIGHUP."""
    def taken():
        with open(d.log) as log:
            return log.read().count("was read anew")
    before = taken()
    with open(d.config, "w") as out:
        out.write(f"[pool]\nsocket = {d.socket}\nstate = {d.state}\n{text}")
    d.process.send_signal(signal.SIGHUP)
    until(30, "the configuration is read anew", lambda: taken() > before)


def ready():
    """How many wait, once none is being made."""
    def still():
        t = {t["name"]: t for t in d.api("GET", "/v1/pool")["templates"]}["tiny"]
        return not t["making"] and [t["spares"] + t["standbys"]]
    return until(60, "none is being made", still)[0]


def fill(template):
    """Create until refused while none is being made: how many there are then, and how many wait."""
    n = 0
    while n < 100:
        before = ready()
        try:
            d.api.create(template)
            n += 1
        except Refused as e:
            tap.equal(e.status, 503, f"{template}: a create is refused", e)
            return n, before
    return n, None


def many(wanted):
    """Create that many of a template of which nothing waits, as fast as what they take is seen; how many there are."""
    n, deadline = 0, time.monotonic() + 120
    while n < wanted and time.monotonic() < deadline:
        try:
            d.api.create("other")
            n += 1
        except Refused:
            time.sleep(0.2)
    return n


def clear():
    for sid in d.api.list():
        d.api.kill(sid)


try:
    d.start()
    d.settle()
    n, waiting = fill("tiny")
    tap.ok(n >= 2, "some are made before that", n)
    tap.equal(waiting, 0, "each that waited was handed out first")
    clear()
    d.settle()
    tap.equal(ready(), 2, "what was given up is made anew")
    n, _ = fill("other")
    tap.ok(n >= 2, "some of another template are made", n)
    tap.ok(ready() < 2, "what waited went before it was refused", ready())
    clear()
    d.settle()
    tap.equal(ready(), 2, "spares that went are made anew")
    tap.equal(many(12), 12, "sandboxes count with what they take, not with what an unknown one might")
    clear()
    configure("memory_budget = 1024M\nmemory_count = reserved\n")
    n = 0
    try:
        while n < 40:
            d.api.create("other")
            n += 1
    except Refused as e:
        tap.equal(e.status, 503, "with guests' whole memory reserved a create is refused")
    tap.ok(0 < n < 16, "after as many as that allows", n)
    clear()
    configure("memory_budget = 1024M\nmemory_reserve = 1000000G\n[template tiny]\nspares = 2\nstandbys = 0\n")
    tap.ok(until(60, "what waits goes", lambda: ready() == 0), "where the host is short of its reserve, what waits goes")
    try:
        d.api.create("other")
        tap.ok(False, "a create is refused then")
    except Refused as e:
        tap.equal(e.status, 503, "a create is refused then", e)
finally:
    tap.equal(d.stop(), {}, "nothing is left of it")
tap.finish()
