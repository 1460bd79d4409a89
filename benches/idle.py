# SPDX-License-Identifier: Apache-2.0
"""idle.py TEMPLATE STORE SCRATCH OUT N …: what `make bench-idle` measures; see pool.sh.

A pool is filled with N idle sandboxes within a budget of 16 GiB. At each of a few sizes, from none on, a create
(answered, and removed again) and the list of all are timed; at the end, what the sandboxes take.
"""
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/tests/e2e")
from pool_lib import *

template, store, scratch, out = sys.argv[1:5]
n = int(os.environ.get("N", 1500))
steps = sorted({0, n} | {step for step in (100, 500, 1000) if step < n})
CREATES = 100
REST_S = 15  # until those that were made last are idle
LISTS = 50


def p50_ms(times):
    return 1e3 * percentile(times, 50)


def mem_available():
    return int(re.search(r"MemAvailable: *(\d+)", open("/proc/meminfo").read())[1]) * 1024


def timed(fn):
    began = time.monotonic()
    value = fn()
    return time.monotonic() - began, value


def fill():
    alive, first, rows = 0, None, []
    print(f"{'alive':>6} {'create p50 ms':>14} {'to none':>8} {'list p50 ms':>12}", flush=True)
    for step in steps:
        while alive < step:
            batch = min(20, step - alive)
            got = together(batch, lambda i: d.api.create(template, timeout=86400))
            bad = [v for _, v in got if isinstance(v, Exception)]
            if bad:
                sys.exit(f"{alive} alive: {len(bad)} of {batch} creates failed, the first with: {bad[0]}")
            alive += batch
        time.sleep(REST_S)
        creates = []
        for _ in range(CREATES):
            took, sid = timed(lambda: d.api.create(template, timeout=60))
            creates.append(took)
            d.api("DELETE", f"/sandboxes/{sid}")
        lists = []
        for _ in range(LISTS):
            took, (status, _, data) = timed(lambda: d.api.raw("GET", "/sandboxes"))
            lists.append(took)
        assert status == 200 and len(json.loads(data)) == alive, (status, len(data))
        first = first or p50_ms(creates)
        rows.append({"alive": alive, "create_p50_ms": p50_ms(creates), "list_p50_ms": p50_ms(lists)})
        print(f"{alive:6} {p50_ms(creates):14.2f} {p50_ms(creates) / first:8.2f} {p50_ms(lists):12.2f}", flush=True)
    taken = available - mem_available()
    print(f"\n{alive} idle sandboxes of {template} within a budget of 16 GiB: the host has {taken / (1 << 30):.1f} GiB less available, "
          f"{taken / (1 << 20) / max(alive, 1):.1f} MiB for each")
    json.dump({"template": template, "rows": rows, "taken_bytes": taken}, open(f"{out}/bench-idle.json", "w"), indent=1)
    print(f"{out}/bench-idle.json")


d = Daemon(scratch, f"store = {store}\nmemory_budget = 16G\nmax_sandboxes = {n + 10}\n[template {template}]\nspares = 0\nstandbys = 0\n")
d.start()
d.settle(600)
available = mem_available()
try:
    fill()
finally:
    d.stop()
