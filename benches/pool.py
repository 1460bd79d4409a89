# SPDX-License-Identifier: Apache-2.0
"""pool.py TEMPLATE STORE SCRATCH OUT N SPARES: what `make bench-pool` measures; see pool.sh.

The targets beside the numbers are those for a host of two cores without KVM.
"""
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/tests/e2e")
from pool_lib import *

template, store, scratch, out, n, spares = sys.argv[1:5] + [int(a) for a in sys.argv[5:7]]
documents = []


def section(title):
    print(f"\n== {title}", flush=True)


def pool(name, **want):
    """A daemon with so many spares and standbys, once it has them."""
    place = f"{scratch}/{name}"
    os.mkdir(place)
    keys = "".join(f"{k} = {v}\n" for k, v in want.items())
    d = Daemon(place, f"store = {store}\nrefill_per_s = 100\n[template {template}]\n{keys}")
    d.start()
    d.settle(600)
    return d


def load(d, name, *words):
    path = f"{scratch}/{name}.json"
    r = subprocess.run([PARBAKE, "bench", "load", template, "--save", path, *words], env=d.env)
    if r.returncode == 0:
        documents.append(path)
    else:
        print(f"({name}: status {r.returncode})")


def smaps(pid):
    """PSS of the guest's memory and of the rest, the guest's private bytes: as vmm's smaps.c counts them."""
    sums = collections.Counter()
    guest = False
    for line in open(f"/proc/{pid}/smaps"):
        head = re.match(r"^[0-9a-f]+-[0-9a-f]+ .*", line)
        if head:
            guest = "/memfd:" in line
            continue
        m = re.match(r"^(\w+):\s+(\d+) kB", line)
        if m and m[1] == "Pss":
            sums["guest" if guest else "own"] += int(m[2]) * 1024
        elif m and guest and m[1].startswith("Private_"):
            sums["guest private"] += int(m[2]) * 1024
    return sums


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def mib(b):
    return f"{b / (1 << 20):.2f} MiB"


section("create → 201, a spare is there (p50 ≤ 6 ms; trimmed QEMU 5)")
d = pool("spare", spares=2, standbys=1)
load(d, "spare", "-n", str(n), "--pace")
section("create → 201 → first command, a spare is there")
load(d, "exec", "-n", str(n), "--pace", "--until", "exec")
d.stop()
section("a standby is there (p50 ≤ 40 ms; trimmed 25)")
d = pool("standby", spares=0, standbys=2)
load(d, "standby", "-n", str(n), "--pace")
d.stop()
section("nothing is there (p50 ≤ 120 ms; trimmed 55)")
d = pool("cold", spares=0, standbys=0)
load(d, "cold", "-n", str(n))
section("50 at once, nothing is there")
load(d, "crowd", "-n", "100", "--concurrency", "50")
section("an open loop, 5 a second")
load(d, "open", "-n", str(n), "--rate", "5")

section("GET /sandboxes with 100 of them (≤ 2 ms)")
ids = [v for _, v in together(10, lambda i: [d.api.create(template, timeout=3600) for _ in range(10)])]
bad = [v for v in ids if isinstance(v, Exception)]
if bad:
    print("creates failed:", bad)
times = []
for _ in range(200):
    began = time.monotonic()
    status, _, data = d.api.raw("GET", "/sandboxes")
    times.append(1e3 * (time.monotonic() - began))
print(f"{len(json.loads(data))} sandboxes, {len(data)} bytes: p50 {percentile(times, 50):.2f} ms, p99 {percentile(times, 99):.2f} ms, "
      f"max {max(times):.2f} ms, n {len(times)}")
d.stop()

section(f"{spares} idle spares of {template}")
d = pool("many", spares=spares, standbys=0)
monitors = {pid: smaps(pid) for pid in d.monitors()}
keepers, count = collections.Counter(), collections.Counter()
for pid, words in d.processes().items():
    kind = d.kind(words)
    if kind != "monitor" and pid != d.process.pid:
        count[kind] += 1
        keepers[kind] += d.pss(pid)
total = collections.Counter()
for s in monitors.values():
    total.update(s)
k = len(monitors)
print(f"{k} machines. PSS of each: monitor {mib(total['own'] / k)}, guest memory {mib(total['guest'] / k)} "
      f"(of it private {mib(total['guest private'] / k)}, most {mib(max(s['guest private'] for s in monitors.values()))}; ≤ 4 MiB)")
for kind in sorted(count):
    print(f"{count[kind]} × {'zygote or keeper' if kind == 'zygote' else kind}: PSS of each {mib(keepers[kind] / count[kind])}")
print(f"daemon: PSS {mib(d.pss())}")
pids = [d.process.pid] + [pid for pid, words in d.processes().items() if d.kind(words) != "monitor" and pid != d.process.pid]
before = {pid: cpu_seconds(pid) for pid in pids}
machines_before = sum(cpu_seconds(pid) for pid in monitors)
time.sleep(10)  # this is what is measured: ten seconds of nothing
print(f"in 10 s of nothing: daemon {1e3 * (cpu_seconds(d.process.pid) - before[d.process.pid]):.0f} ms of CPU, zygotes, keepers and pager "
      f"{1e3 * sum(cpu_seconds(p) - before[p] for p in pids[1:]):.0f} ms, paused machines "
      f"{1e3 * (sum(cpu_seconds(p) for p in monitors) - machines_before):.0f} ms")
d.stop()

if documents:
    subprocess.run([PARBAKE, "bench", "report", "--save", f"{out}/bench-pool.json", "--report", f"{out}/bench-pool.html", *documents], check=True)
    print(f"\n{out}/bench-pool.json and {out}/bench-pool.html")
