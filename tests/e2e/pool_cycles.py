# SPDX-License-Identifier: Apache-2.0
"""pool_cycles.py N SCRATCH: create and kill N times; what the pool has of everything is what it had before."""
import sys, time
from pool_lib import *

n, scratch = int(sys.argv[1]), sys.argv[2]
tap = Tap()
d = Daemon(scratch, "refill_per_s = 100\n[template tiny]\nspares = 2\nstandbys = 1\n")
created, killed = [], []


def cycle(i):
    began = time.monotonic()
    sid = d.api.create("tiny", metadata={"cycle": str(i)})
    created.append(time.monotonic() - began)
    if d.api.exec(sid, f"echo {i}") != f"{i}\n":
        raise RuntimeError(f"{sid} did not echo {i}")
    if i % 20 == 7:
        d.api("POST", f"/sandboxes/{sid}/pause")
        d.api("POST", f"/sandboxes/{sid}/resume", {"timeout": 60})
        if d.api.exec(sid, "cat /run/tiny-started") != "started\n":
            raise RuntimeError(f"{sid} is another after its pause")
    if i % 20 == 13:
        for fork in d.api.fork(sid, 2):
            d.api.kill(fork)
    began = time.monotonic()
    d.api.kill(sid)
    killed.append(time.monotonic() - began)


def cycles(first, last):
    failed = []
    for i in range(first, last, 4):
        for _, value in together(min(4, last - i), lambda j: cycle(i + j)):
            if value is not None:
                failed.append(value)
    return failed


def at_rest():
    """The census that five looks in a row agree on: connections of the last requests are still being closed."""
    seen, counts = [], []

    def agree():
        seen.append(d.census())
        # a machine's own threads come and go
        counts.append({key: n for key, n in seen[-1][0].items() if key != "threads monitor"})
        return len(counts) >= 5 and all(one == counts[-1] for one in counts[-5:])

    until(30, "the pool is at rest", agree)
    return seen[-1]


try:
    d.start()
    d.settle()
    one, alone = d.api.create("tiny"), d.monitors()
    tap.ok(len(alone) >= 1, "the monitors of the pool are found", d.processes())
    d.api.kill(one)
    tap.equal(cycles(0, 40), [], "the first 40, until what is made once is made")
    d.settle()
    before, shared_before = at_rest()
    pss_before, own_before = d.pss(), d.pss(part="Pss_Anon")
    created.clear()
    tap.equal(cycles(40, 40 + n), [], f"{n} cycles, four at once")
    d.settle()
    # what ends is not gone in the instant that its end is told
    try:
        until(10, "all ends where it began", lambda: d.census()[0] == before)
    except TimeoutError:
        pass  # what does not is told below
    after, shared_after = d.census()
    pss_after, own_after = d.pss(), d.pss(part="Pss_Anon")
    tap.note(f"create p50 {1e3 * percentile(created, 50):.1f} ms, p99 {1e3 * percentile(created, 99):.1f} ms, max {1e3 * max(created):.1f} ms; "
             f"kill p50 {1e3 * percentile(killed, 50):.1f} ms")
    tap.note(f"daemon's PSS {pss_before >> 10} KiB, then {pss_after >> 10} KiB; of it memory of its own {own_before >> 10}, then {own_after >> 10} KiB; nameless files {shared_before >> 20} MiB, then {shared_after >> 20} MiB")
    # a machine's own threads come with its disk's work and go when it rests
    for key in sorted((set(before) | set(after)) - {"threads monitor"}):
        tap.equal(after.get(key), before.get(key), f"{key}: {before.get(key)} before and after")
    tap.ok(shared_after <= shared_before + (16 << 20), "shared memory ends where it began", shared_before, shared_after)
    tap.ok(own_after <= own_before + (1 << 20), "the daemon's memory ends where it began", own_before, own_after)
    tap.equal(d.api.list(), {}, "no sandbox is left")
except Exception as e:
    tap.ok(False, "goes to its end", repr(e), open(d.log).read()[-3000:])
tap.equal(d.stop(), {}, "when it has stopped, nothing of it runs")
tap.finish()
