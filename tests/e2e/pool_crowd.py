# SPDX-License-Identifier: Apache-2.0
"""pool_crowd.py N SCRATCH: N creates at once, with one machine stopped that others wait for; none waits behind it."""
import sys, time
from pool_lib import *

n, scratch = int(sys.argv[1]), sys.argv[2]
tap = Tap()
d = Daemon(scratch, "refill_per_s = 50\n[template tiny]\nspares = 1\nstandbys = 1\n")
stopped = set()
try:
    d.start()
    d.settle()
    before = d.monitors()
    stuck = d.api.create("tiny")
    d.settle()
    # its monitor: of those that there are, the one whose stop keeps it from answering
    for pid in d.monitors():
        os.kill(pid, signal.SIGSTOP)
        try:
            d.api.exec(stuck, "true", timeout=3)
            os.kill(pid, signal.SIGCONT)
        except OSError:
            stopped.add(pid)
            break
    tap.equal(len(stopped), 1, "a machine is stopped")
    # and there are those who wait for it
    api, waits = Api(d.socket), []
    waiting = [threading.Thread(target=lambda: waits.append(Api(d.socket).raw("POST", f"/sandboxes/{stuck}/exec", {"cmd": "true"})), daemon=True)
               for _ in range(4)]
    for t in waiting:
        t.start()
    results = together(n, lambda i: d.api.create("tiny"))
    bad = [v for _, v in results if not isinstance(v, str)]
    tap.equal(bad, [], f"{n} creates at once: all succeed")
    times = [s for s, v in results if isinstance(v, str)]
    tap.note(f"create p50 {1e3 * percentile(times, 50):.0f} ms, p99 {1e3 * percentile(times, 99):.0f} ms, max {1e3 * max(times or [0]):.0f} ms, of {len(times)}")
    tap.equal(len({v for _, v in results}), n, "each another")
    ids = [v for _, v in results if isinstance(v, str)]
    answers = together(len(ids), lambda i: d.api.exec(ids[i], "cat /run/tiny-started"))
    tap.equal([v for _, v in answers if v != "started\n"], [], "all answer")
    tap.equal(waits, [], "meanwhile the stopped one has answered nobody")
    tap.equal(len(d.api.list()), n + 1, "the list has them all, the stopped one too")
    # killing works on a stopped one, and answers when it is gone
    pid = next(iter(stopped))
    took = time.monotonic()
    d.api.kill(stuck)
    tap.note(f"the kill of a stopped one took {1e3 * (time.monotonic() - took):.0f} ms")
    tap.ok(pid not in d.processes(), "a killed one is gone when the answer comes")
    try:
        d.api.kill(stuck)
        tap.ok(False, "a second kill: there is none such")
    except Refused as e:
        tap.equal(e.status, 404, "a second kill: there is none such")
    for t in waiting:
        t.join(20)
    tap.ok(len(waits) == 4 and all(w[0] >= 400 for w in waits), "who waited for it is told", waits)
    tap.equal([v for _, v in together(len(ids), lambda i: d.api.kill(ids[i])) if v], [], "all are killed at once")
    d.settle()
    until(10, "as many machines as before", lambda: len(d.monitors()) == len(before))
    tap.equal(len(d.monitors()), len(before), "as many machines as before")
except Exception as e:
    tap.ok(False, "goes to its end", repr(e), open(d.log).read()[-3000:])
for pid in stopped & set(d.processes()):
    os.kill(pid, signal.SIGCONT)
tap.equal(d.stop(), {}, "when it has stopped, nothing of it runs")
tap.finish()
