# SPDX-License-Identifier: Apache-2.0
"""pool_chaos.py SEEDS SCRATCH [FIRST]: kill -9 the daemon in the midst of creates, pauses, resumes, forks and kills; start
another. Within 5 s there is no orphan, no litter, and no sandbox lost that was not being killed.

What a sandbox is known by lies in its memory alone, so that one that was quietly made anew is found out.
"""
import random, sys, time
from pool_lib import *

seeds, scratch, first = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1
SECONDS = 5
tap = Tap()
d = Daemon(scratch, "refill_per_s = 50\n[template tiny]\nspares = 1\nstandbys = 1\n")
known = {}  # id: (nonce, "running" or "paused"), as the last answer has it
worst = 0
caught = collections.Counter()  # requests that were under way when it died


class Storm:
    """Requests under way when the daemon dies."""

    def __init__(self, rng):
        self.rng, self.lock, self.threads = rng, threading.Lock(), []
        self.touched = {}  # id: what was being done to it, unanswered
        self.errors = []
        self.changed, self.answered = threading.Condition(self.lock), 0
        free = sorted(known)
        rng.shuffle(free)
        for _ in range(rng.randint(2, 5)):
            what = rng.choice(["create", "create", "pause", "resume", "fork", "kill"])
            want = "paused" if what == "resume" else "running"
            sid = next((s for s in free if known[s][1] == want), None)
            if what == "create" or sid is None:
                self.add("create", None)
            else:
                free.remove(sid)
                self.add(what, sid)

    def add(self, what, sid):
        if sid:
            self.touched[sid] = what
        self.threads.append(threading.Thread(target=self.one, args=(what, sid)))

    def one(self, what, sid):
        self.run(what, sid)
        with self.lock:
            self.answered += 1
            self.changed.notify()

    def run(self, what, sid):
        api = Api(d.socket)
        try:
            if what == "create":
                new = api.create("tiny", timeout=600)
                with self.lock:
                    known[new] = (None, "running")
                return
            if what == "kill":
                api.kill(sid)
                with self.lock:
                    del known[sid]
            elif what == "fork":
                for fork in api.fork(sid, 2):
                    with self.lock:
                        known[fork] = (known[sid][0], "running")
            else:
                api("POST", f"/sandboxes/{sid}/{what}", {"timeout": 600})
                with self.lock:
                    known[sid] = (known[sid][0], "paused" if what == "pause" else "running")
            with self.lock:
                del self.touched[sid]
        except (OSError, http.client.HTTPException):
            with self.lock:
                caught[what] += 1  # the daemon went: how it ended is not known
        except Refused as e:
            with self.lock:
                self.errors.append(f"{what} {sid}: {e}")
                self.touched.pop(sid, None)

    def go(self):
        for t in self.threads:
            t.start()
        # when it dies, by how far it has got: on a machine of any speed something is under way then
        answers = self.rng.randrange(len(self.threads))
        with self.lock:
            self.changed.wait_for(lambda: self.answered >= answers, 60)
        time.sleep(self.rng.uniform(0, 0.1) ** 1.5)
        d.kill9()
        for t in self.threads:
            t.join(60)


def lost(storm, listed):
    """Of what was known: what is not as it must be."""
    bad = []
    for sid, (_, state) in known.items():
        doing = storm.touched.get(sid)
        allowed = {"kill": {None, state}, "pause": {"running", "paused"}, "resume": {"running", "paused"}}.get(doing, {state})
        if listed.get(sid, {}).get("state") not in allowed:
            bad.append(f"{sid} is {listed.get(sid, {}).get('state')}, was {state}, {doing or 'untouched'}")
    return bad


def adopt(listed):
    """What there is from now on; those that run must answer, and be who they were."""
    bad = []
    for sid in [s for s in known if s not in listed]:
        del known[sid]
    for sid, one in listed.items():
        nonce = known.get(sid, (None, None))[0]
        if one["state"] == "running":
            try:
                got = d.api.exec(sid, "cat /dev/shm/nonce 2>/dev/null; cat /run/tiny-started", timeout=20).split()
            except Exception as e:
                bad.append(f"{sid} does not answer: {e}")
                continue
            if got[-1:] != ["started"] or (nonce and got != [nonce, "started"]):
                bad.append(f"{sid} says {got}, was {nonce}")
            if len(got) == 1:
                nonce = uuid.uuid4().hex
                d.api.exec(sid, f"echo {nonce} >/dev/shm/nonce")
            else:
                nonce = got[0]
        known[sid] = (nonce, one["state"])
    return bad


def litter():
    """Machines and files that nobody owns."""
    listed = d.api.list()
    running = {s for s, one in listed.items() if one["state"] == "running"}
    stock = sum(t["spares"] + t["standbys"] for t in d.api("GET", "/v1/pool")["templates"])
    files = [f.strip("/").split("/") for f in d.files()]
    bad = []
    if len(d.monitors()) != len(running) + stock:
        bad.append(f"{len(d.monitors())} machines for {len(running)} sandboxes and {stock} in stock")
    bad += ["/".join(f) for f in files if f[0] == "trash" and len(f) > 1]
    # paused/ID.json, captures/ID-N
    bad += ["/".join(f) for f in files if f[0] in ("paused", "captures") and len(f) > 1 and re.split("[.-]", f[1])[0] not in listed]
    sockets = {f[1] for f in files if len(f) == 2 and re.match(r"^[0-9a-f]{12}$", f[0])}
    if sockets - running:
        bad.append(f"sockets of nobody: {sockets - running}")
    return bad


def one(seed):
    global worst
    rng = random.Random(seed)
    storm = Storm(rng)
    storm.go()
    began = time.monotonic()
    d.start()
    try:
        until(SECONDS, "all is found", lambda: not lost(storm, d.api.list()))
        until(SECONDS, "no litter", lambda: d.settled() and not litter())
    except TimeoutError:
        pass
    took = time.monotonic() - began
    worst = max(worst, took)
    bad = storm.errors + lost(storm, d.api.list()) + litter() + adopt(d.api.list())
    if took > SECONDS:
        bad.append(f"it took {took:.1f} s")
    # not too many of them
    for sid in sorted(known)[6:]:
        d.api.kill(sid)
        del known[sid]
    return bad


try:
    d.start()
    d.settle()
    for _ in range(3):
        known[d.api.create("tiny", timeout=600)] = (None, "running")
    tap.equal(adopt(d.api.list()), [], "the first sandboxes answer")
    tap.equal(litter(), [], "at rest there is no litter")
    for seed in range(first, first + seeds):
        bad = one(seed)
        if not tap.equal(bad, [], f"seed {seed}: nothing lost, nothing left", open(d.log).read()[-3000:]):
            known.clear()
            for sid in d.api.list():
                d.api.kill(sid)
    tap.note(f"{seeds} times, at most {worst:.2f} s from the start of the next daemon until all was in order")
    tap.note("requests under way when it died: " + ", ".join(f"{n} × {what}" for what, n in sorted(caught.items())))
    tap.ok(caught, "some were, at least")
    # the two daemons of one state directory
    second = subprocess.run([PARBAKE, "pool", "serve", "--config", d.config], stdin=subprocess.DEVNULL, capture_output=True, env=d.env, timeout=60)
    tap.ok(second.returncode != 0 and d.process.poll() is None, "a second daemon on one state directory refuses", second)
except Exception as e:
    tap.ok(False, "goes to its end", repr(e), open(d.log).read()[-3000:])
tap.equal(d.stop(), {}, "when it has stopped, nothing of it runs")
tap.finish()
