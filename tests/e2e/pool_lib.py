# SPDX-License-Identifier: Apache-2.0
"""What the tests of a running pool share: a daemon of one's own, its API, and a count of all that it has.

The daemon is started with a mark in its environment, which its zygotes and keepers inherit, and with a range of users of its
own for its machines and pagers: so its processes are found, whoever their parent is by then. Nothing is waited for by sleeping alone: each wait looks for what it waits for, with a deadline.
"""
import collections, http.client, json, os, random, re, signal, socket, stat, subprocess, sys, threading, time, uuid

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PARBAKE = os.environ.get("PARBAKE", TOP + "/parbake")


# ---- TAP -----------------------------------------------------------------------------------------

class Tap:
    n = bad = 0

    def ok(self, good, name, *details):
        self.n += 1
        if not good:
            self.bad += 1
        print(f"{'ok' if good else 'not ok'} {self.n} - {name}")
        for line in details if not good else ():
            print("# " + str(line).replace("\n", "\n# ")[:4000])
        sys.stdout.flush()
        return good

    def equal(self, got, want, name, *details):
        return self.ok(got == want, name, f"got:  {got}", f"want: {want}", *details)

    def note(self, text):
        print("# " + text, flush=True)

    def finish(self):
        print(f"1..{self.n}")
        sys.exit(0 if self.n and not self.bad else 1)


# ---- the API -------------------------------------------------------------------------------------

class Unix(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Refused(Exception):
    def __init__(self, status, body):
        super().__init__(f"{status} {body}")
        self.status, self.body = status, body


class Api:
    """One connection a thread, kept."""

    def __init__(self, path):
        self.path, self.local = path, threading.local()

    def drop(self):
        self.local = threading.local()

    def raw(self, method, path, body=None, timeout=60):
        conn = getattr(self.local, "conn", None)
        # the server closes what is idle
        if conn is None or conn.timeout != timeout or time.monotonic() - self.local.used > 20:
            conn = self.local.conn = Unix(self.path, timeout)
        self.local.used = time.monotonic()
        try:
            conn.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
            answer = conn.getresponse()
            return answer.status, answer.getheader("x-next-token"), answer.read()
        except Exception:
            self.local.conn = None
            conn.close()
            raise

    def __call__(self, method, path, body=None, timeout=60):
        status, _, data = self.raw(method, path, body, timeout)
        if status >= 300:
            raise Refused(status, data.decode(errors="replace"))
        return json.loads(data) if data else None

    def list(self, state="running,paused"):
        found, token = {}, ""
        while True:
            status, token, data = self.raw("GET", f"/v2/sandboxes?state={state}&limit=100" + (f"&nextToken={token}" if token else ""))
            if status >= 300:
                raise Refused(status, data.decode())
            for one in json.loads(data):
                found[one["sandboxID"]] = one
            if not token:
                return found

    def create(self, template, **body):
        return self("POST", "/sandboxes", dict({"templateID": template}, **body))["sandboxID"]

    def exec(self, sid, line, timeout=60):
        answer = self("POST", f"/sandboxes/{sid}/exec", {"cmd": line}, timeout)
        if answer["exit_code"] != 0:
            raise Refused(200, f"{line}: {answer}")
        return answer["stdout"]

    def fork(self, sid, count):
        """The new ids."""
        return [one["sandbox"]["sandboxID"] for one in self("POST", f"/sandboxes/{sid}/fork", {"count": count}) if "sandbox" in one]

    def kill(self, sid):
        return self("DELETE", f"/sandboxes/{sid}")


# ---- the daemon ----------------------------------------------------------------------------------

def until(seconds, what, fn):
    """fn's value, once it is true; asked again until then."""
    deadline = time.monotonic() + seconds
    while True:
        value = fn()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.01)


class Daemon:
    def __init__(self, scratch, config="", env=None):
        self.scratch = scratch
        self.socket, self.state, self.config = scratch + "/pool.sock", scratch + "/state", scratch + "/pool.ini"
        self.mark = "PARBAKE_TEST_MARK=" + uuid.uuid4().hex
        self.env = dict(os.environ, PARBAKE_API="unix:" + self.socket, **(env or {}))
        self.env[self.mark.split("=")[0]] = self.mark.split("=")[1]
        self.users = 0x70000000 + 0x400000 * random.SystemRandom().randint(1, 500)
        self.env["PARBAKE_USERS"] = str(self.users)
        self.api = Api(self.socket)
        self.log = scratch + "/pool.log"
        self.process, self.program = None, PARBAKE
        with open(self.config, "w") as out:
            out.write(f"[pool]\nsocket = {self.socket}\nstate = {self.state}\n{config}")

    def start(self, seconds=60):
        """Returns when it answers; the seconds that took."""
        began = time.monotonic()
        self.api.drop()
        self.process = subprocess.Popen([self.program, "pool", "serve", "--config", self.config], stdin=subprocess.DEVNULL,
                                        stdout=open(self.log, "a"), stderr=subprocess.STDOUT, env=self.env)
        until(seconds, "the pool answers", self.answers)
        return time.monotonic() - began

    def answers(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"the pool ended with {self.process.returncode}: {open(self.log).read()[-2000:]}")
        try:
            self.api("GET", "/healthz", timeout=5)
            return True
        except (OSError, Refused, http.client.HTTPException, ValueError) as e:
            return isinstance(e, ValueError)  # it said OK in words

    def ask(self, key, method, path, body=None):
        """Status and text of the answer to the holder of that key; "": of none. Its headers stay in self.headers."""
        conn = Unix(self.socket, timeout=120)
        try:
            conn.request(method, path, json.dumps(body) if body is not None else None, {"X-API-Key": key} if key else {})
            answer = conn.getresponse()
            self.headers = answer.headers
            return answer.status, answer.read().decode()
        finally:
            conn.close()

    def leave(self):
        """SIGTERM: its sandboxes go on."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def kill9(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """SIGTERM: sandboxes go on, so they are ended first. What runs of it all the same, which is ended by force."""
        if self.process and self.process.poll() is None:
            for sid in self.api.list():
                try:
                    self.api.kill(sid)
                except Refused:
                    pass
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)
        left = self.gone(15)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return left

    def gone(self, seconds):
        """What still runs of it, at most so much later."""
        try:
            until(seconds, "nothing runs", lambda: not self.processes())
        except TimeoutError:
            pass
        return self.processes()

    def settled(self):
        for t in self.api("GET", "/v1/pool")["templates"]:
            if t["spares"] != t["want_spares"] or t["standbys"] != t["want_standbys"] or t["making"]:
                return False
        return True

    def settle(self, seconds=120):
        until(seconds, "the pool has what it is to have", self.settled)

    # -- what there is of it

    def processes(self):
        """{pid: words} of all that it started, itself too; zombies are none."""
        found, mark = {}, self.mark.encode()
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                with open(f"/proc/{name}/environ", "rb") as f:
                    ours = mark in f.read().split(b"\0")
                if not ours and not self.users <= os.stat(f"/proc/{name}").st_uid < self.users + 0x400000:
                    with open(f"/proc/{name}/status") as f:
                        uid = int(re.search(r"^Uid:\s*(\d+)", f.read(), re.M)[1])
                    if not self.users <= uid < self.users + 0x400000:
                        continue
                with open(f"/proc/{name}/cmdline", "rb") as f:
                    words = f.read().decode(errors="replace").split("\0")
            except OSError:
                continue
            if words != [""]:
                found[int(name)] = words
        return found

    @staticmethod
    def kind(words):
        program = os.path.basename(words[0])
        if "qemu" in program or "parbake-vmm" in program:
            return "monitor"
        return " ".join(words[1:3] if words[1:2] == ["pool"] else words[1:2])

    def monitors(self):
        return {pid for pid, words in self.processes().items() if self.kind(words) == "monitor"}

    def files(self):
        """Of the state directory and of the sockets: names."""
        found = []
        for top in (self.state, os.environ["PARBAKE_HOME"] + "/run/pool"):
            for path, dirs, names in os.walk(top):
                found += [os.path.join(path, n)[len(top):] for n in names + dirs if not n.startswith("lock")]
        return sorted(found)

    def census(self):
        """All that could leak, as numbers."""
        c = collections.Counter()
        inodes = {}
        for pid, words in self.processes().items():
            kind = self.kind(words)
            try:
                c["processes " + kind] += 1
                c["threads " + kind] += int(re.search(r"^Threads:\s*(\d+)", open(f"/proc/{pid}/status").read(), re.M)[1])
                for fd in os.listdir(f"/proc/{pid}/fd"):
                    c["descriptors " + kind] += 1
                    st = os.stat(f"/proc/{pid}/fd/{fd}")
                    if stat.S_ISREG(st.st_mode) and st.st_nlink == 0:
                        inodes[st.st_dev, st.st_ino] = st.st_blocks * 512
            except OSError:
                continue  # it has just ended
        c["nameless files"] = len(inodes)
        c["files"] = len(self.files())
        return dict(c), sum(inodes.values())

    def pss(self, pid=None, part="Pss"):
        """Its proportional set size; "Pss_Anon": of its own memory alone, which does not depend on who else runs our program."""
        return int(re.search(rf"^{part}:\s*(\d+)", open(f"/proc/{pid or self.process.pid}/smaps_rollup").read(), re.M)[1]) * 1024


def percentile(values, p):
    """By nearest rank, as benches/stats.c has it."""
    values = sorted(values)
    return values[max(0, min(len(values), -(-len(values) * p // 100)) - 1)] if values else 0


def together(n, fn):
    """fn(i) in n threads that begin at once: [(seconds, value or exception)]."""
    barrier, results = threading.Barrier(n), [None] * n

    def one(i):
        barrier.wait()
        began = time.monotonic()
        try:
            value = fn(i)
        except Exception as e:
            value = e
        results[i] = (time.monotonic() - began, value)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results
