# SPDX-License-Identifier: Apache-2.0
"""envd.py MB SCRATCH: commands and files in a sandbox of a pool, over its API's socket."""
import base64, hashlib, struct, sys, time
from urllib.parse import urlencode
from pool_lib import *

mb, scratch = int(sys.argv[1]), sys.argv[2]
tap = Tap()
d = Daemon(scratch, "[template tiny]\nstandbys = 0\nspares = 0\n")
CONNECT = {"Content-Type": "application/connect+json"}


def begin(method, path, body=b"", headers=None, timeout=120):
    """The connection and its answer, whose headers have come."""
    conn = Unix(d.socket, timeout)
    conn.request(method, path, body, headers or {"Content-Type": "application/json"})
    return conn, conn.getresponse()


def leave(conn, answer):
    """Hang up: the answer holds the socket too."""
    conn.sock and conn.sock.shutdown(socket.SHUT_RDWR)
    answer.close()
    conn.close()


def events(answer):
    """Of NDJSON."""
    for line in answer:
        yield json.loads(line)


def messages(answer):
    """Of Connect's envelopes: (flags, message)."""
    while True:
        head = answer.read(5)
        if len(head) < 5:
            return
        flags, n = struct.unpack(">BI", head)
        yield flags, json.loads(answer.read(n))


def start(sid, message, **headers):
    body = json.dumps(message).encode()
    return begin("POST", f"/sandboxes/{sid}/process.Process/Start", struct.pack(">BI", 0, len(body)) + body, dict(CONNECT, **headers))


def running(sid, words):
    """How many processes of the sandbox are called so."""
    line = "for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$p 2>/dev/null; echo; done"
    return d.api.exec(sid, line).split("\n").count(words + " ")


def big_output(sid):
    size = mb * 1000 * 1000
    want = hashlib.sha256((b"y\n" * (size // 2))).hexdigest()
    conn, answer = begin("POST", f"/v1/sandboxes/{sid}/exec", json.dumps({"cmd": f"yes | head -c {size}", "stream": True, "timeout_ms": 600000}))
    got, total, first, before, peak, end = hashlib.sha256(), 0, True, d.pss(), 0, {}
    for e in events(answer):
        if e["type"] == "stdout":
            data = base64.b64decode(e["data"])
            got.update(data)
            total += len(data)
            if first:  # a reader that stops: all that fits anywhere between is full when others get by as before
                for _ in range(20):
                    d.api.exec(sid, "true")
                peak, first = d.pss(), False
        elif e["type"] == "end":
            end = e
    conn.close()
    tap.equal((total, got.hexdigest()), (size, want), f"{mb} MB of output, byte for byte")
    tap.ok(end.get("exit_code") == 0 and end["stdout_bytes"] == size and not end["stdout_cut"], "whole, and told so", end)
    tap.ok(peak - before < 8 << 20 and d.pss() - before < 8 << 20,
           f"while its reader stood still the daemon took {(peak - before) >> 10} KiB, afterwards {(d.pss() - before) >> 10} KiB")


def files(sid):
    size = max(mb // 5, 1) * 1000 * 1000
    data = random.Random(7).randbytes(size)
    conn, answer = begin("POST", f"/sandboxes/{sid}/files?path=/tmp/deep/down/up.bin", data, {"Content-Type": "application/octet-stream"})
    told = json.loads(answer.read())
    tap.equal(told, [{"name": "up.bin", "type": "file", "path": "/tmp/deep/down/up.bin"}], "an upload")
    tap.equal(d.api.exec(sid, "sha256sum </tmp/deep/down/up.bin").split()[0], hashlib.sha256(data).hexdigest(), "an upload is the same in the guest")
    conn, answer = begin("GET", f"/sandboxes/{sid}/files?path=/tmp/deep/down/up.bin")
    tap.ok(answer.status == 200 and answer.read() == data, "an upload is the same when it is read back")
    conn, answer = begin("GET", f"/sandboxes/{sid}/files?path=/none")
    tap.ok(answer.status == 404 and json.loads(answer.read())["code"] == 404, "one that is not there")
    # a client that goes in the middle of an upload
    conn = Unix(d.socket, 60)
    conn.putrequest("POST", f"/sandboxes/{sid}/files?path=/tmp/deep/down/up.bin")
    conn.putheader("Content-Type", "application/octet-stream")
    conn.putheader("Content-Length", str(size))
    conn.endheaders()
    conn.send(b"x" * 100000)
    conn.close()
    left = lambda: d.api.exec(sid, "ls -A /tmp/deep/down").split()
    tap.ok(until(30, "what was begun is cleared", lambda: left() == ["up.bin"]), "an upload that is cut leaves nothing")
    tap.equal(d.api.exec(sid, "sha256sum </tmp/deep/down/up.bin").split()[0], hashlib.sha256(data).hexdigest(), "an upload that is cut changes nothing")
    # a disk that is full
    d.api("POST", f"/sandboxes/{sid}/exec", {"cmd": "head -c 1G /dev/zero >/var/full"}, timeout=300)
    conn = Unix(d.socket, 300)
    try:
        conn.request("POST", f"/sandboxes/{sid}/files?path=/var/last", data, {"Content-Type": "application/octet-stream"})
    except BrokenPipeError:
        pass  # it is told before all has been sent
    answer = conn.getresponse()
    body = answer.read().decode()
    tap.ok(answer.status == 507 and "No space" in body, "where the disk is full it is said", answer.status, body)
    d.api.exec(sid, "rm -f /var/full")


def signed(_):
    """An address that is signed opens its one file, without a key or a token, and says why it does not."""
    made = d.api("POST", "/sandboxes", {"templateID": "tiny", "timeout": 600})
    own, token = made["sandboxID"], made["envdAccessToken"]

    def ask(method, path, op, expires=None, signature=None, body=b""):
        raw = f"{path}:{op}::{token}" + (f":{expires}" if expires else "")
        right = "v1_" + base64.b64encode(hashlib.sha256(raw.encode()).digest()).rstrip(b"=").decode()
        query = {"path": path, "signature": right if signature is None else signature}
        query.update({"signature_expiration": expires} if expires else {})
        conn, answer = begin(method, f"/sandboxes/{own}/files?{urlencode(query)}", body, {"Content-Type": "application/octet-stream"})
        return answer.status, answer.read()

    tap.equal(ask("POST", "/srv/signed", "write", body=b"content")[0], 200, "a signed address to write")
    tap.equal(ask("GET", "/srv/signed", "read", int(time.time()) + 600), (200, b"content"), "a signed address reads until it expires")
    for what, got, words in (("one to write, for reading", ask("GET", "/srv/signed", "write"), b"invalid signature"),
                             ("a wrong one", ask("GET", "/srv/signed", "read", signature="v1_x"), b"invalid signature"),
                             ("one whose time is up", ask("GET", "/srv/signed", "read", 1000), b"signature is already expired")):
        tap.ok(got[0] == 401 and words in got[1], f"{what}: {words.decode()}", got)
    d.api.kill(own)


def echo(sid):
    size = max(mb // 10, 1) * 1000 * 1000
    data = random.Random(9).randbytes(size)
    conn, answer = start(sid, {"process": {"cmd": "cat"}})
    parts = messages(answer)
    pid = next(parts)[1]["event"]["start"]["pid"]
    out, ended, failed = hashlib.sha256(), [], []

    def read():
        for flags, m in parts:
            event = m.get("event", {})
            if "data" in event:
                out.update(base64.b64decode(event["data"]["stdout"]))
            elif "end" in event:
                ended.append(event["end"])

    reader = threading.Thread(target=read)
    reader.start()
    for at in range(0, size, 400000):
        d.api("POST", f"/sandboxes/{sid}/process.Process/SendInput",
              {"process": {"pid": pid}, "input": {"stdin": base64.b64encode(data[at:at + 400000]).decode()}})
    d.api("POST", f"/sandboxes/{sid}/process.Process/CloseStdin", {"process": {"pid": pid}})
    reader.join()
    tap.equal(out.hexdigest(), hashlib.sha256(data).hexdigest(), f"{size // 1000000} MB through a command's input and back")
    tap.ok(ended and ended[0]["exitCode"] == 0 and ended[0]["exited"], "which then ended", ended)


def ends(sid):
    answer = d.api("POST", f"/sandboxes/{sid}/exec", {"cmd": "setsid sleep 321 & sleep 322", "timeout_ms": 500})
    tap.ok(answer["timed_out"], "a timeout", answer)
    tap.equal(running(sid, "sleep 321") + running(sid, "sleep 322"), 0, "kills the whole tree, who left the session too")
    for stream in (True, False):
        conn = Unix(d.socket, 60)
        conn.request("POST", f"/sandboxes/{sid}/exec", json.dumps({"cmd": "sleep 331 & sleep 332", "stream": stream}), {"Content-Type": "application/json"})
        until(60, "the command runs", lambda: running(sid, "sleep 332"))
        conn.close()
        tap.ok(running(sid, "sleep 331") == 1 and running(sid, "sleep 332") == 1,
               f"a client that goes {'while it reads' if stream else 'while it waits'} leaves its command behind")
        for one in d.api("POST", f"/sandboxes/{sid}/process.Process/List", {})["processes"]:
            d.api("POST", f"/sandboxes/{sid}/process.Process/SendSignal", {"process": {"pid": one["pid"]}, "signal": "SIGNAL_SIGKILL"})
        tap.ok(until(60, "the tree is gone", lambda: running(sid, "sleep 331") + running(sid, "sleep 332") == 0), "until it is killed, its whole tree")
    conn, answer = start(sid, {"process": {"cmd": "sleep", "args": ["341"]}, "tag": "stays"})
    next(messages(answer))
    leave(conn, answer)
    listed = d.api("POST", f"/sandboxes/{sid}/process.Process/List", {})["processes"]
    tap.ok(running(sid, "sleep 341") == 1 and [p["tag"] for p in listed] == ["stays"], "what has a tag goes on", listed)
    d.api("POST", f"/sandboxes/{sid}/process.Process/SendSignal", {"process": {"tag": "stays"}, "signal": "SIGNAL_SIGKILL"})
    tap.ok(until(30, "it is gone", lambda: running(sid, "sleep 341") == 0), "until it is killed")


def follow(sid, pid):
    body = json.dumps({"process": {"pid": pid}}).encode()
    return begin("POST", f"/sandboxes/{sid}/process.Process/Connect", struct.pack(">BI", 0, len(body)) + body, CONNECT)


def counted(sid, pid, word):
    """What the command COUNTER says of a line, by a new follower; None: it says something else."""
    conn, answer = follow(sid, pid)
    parts = messages(answer)
    next(parts)
    d.api("POST", f"/sandboxes/{sid}/process.Process/SendInput", {"process": {"pid": pid}, "input": {"stdin": base64.b64encode(word + b"\n").decode()}})
    said = b""
    for _, m in parts:
        said += base64.b64decode(m.get("event", {}).get("data", {}).get("stdout", ""))
        if said.endswith(b":" + word + b"\n"):
            break
    leave(conn, answer)
    return said


COUNTER = "n=0; while read x; do n=$((n+1)); echo $n:$x; done"


def kept(sid):
    """A command goes through a pause, a fork and the end of the daemon, followed or not."""
    own = d.api.create("tiny", timeout=1800)
    conn, answer = start(own, {"process": {"cmd": "sh", "args": ["-c", COUNTER]}, "tag": "counter"})
    pid = next(messages(answer))[1]["event"]["start"]["pid"]
    d.api.exec(own, "(sleep 351 </dev/null >/dev/null 2>&1 &)")
    tap.equal(running(own, "sleep 351"), 1, "what a command leaves behind lives on")
    tap.equal(counted(own, pid, b"a"), b"1:a\n", "a command is followed by two")
    d.api("POST", f"/sandboxes/{own}/pause")
    conn.close()
    d.api("POST", f"/sandboxes/{own}/resume", {"timeout": 1800})
    tap.equal([(p["pid"], p["tag"]) for p in d.api("POST", f"/sandboxes/{own}/process.Process/List", {})["processes"]], [(pid, "counter")],
              "a pause and a resume later it is listed")
    tap.equal(counted(own, pid, b"b"), b"2:b\n", "a command that was followed at the pause goes on")
    tap.equal(running(own, "sleep 351"), 1, "a command that was left behind goes on after the pause")
    fork = d.api.fork(own, 1)[0]
    tap.equal(counted(fork, pid, b"c"), b"3:c\n", "in a fork")
    tap.equal(counted(own, pid, b"d"), b"3:d\n", "a command goes on in the sandbox that was forked")
    d.kill9()
    d.start()
    tap.equal(counted(own, pid, b"e"), b"4:e\n", "a command goes on under another daemon")
    tap.equal(d.api.exec(own, "echo up"), "up\n", "where others run as well")
    d.api("POST", f"/sandboxes/{own}/process.Process/SendSignal", {"process": {"tag": "counter"}, "signal": "SIGNAL_SIGKILL"})
    tap.ok(until(30, "it is gone", lambda: d.api("POST", f"/sandboxes/{own}/process.Process/List", {})["processes"] == []), "until it is killed")
    for one in (own, fork):
        d.api.kill(one)


def machines(sid):
    """Machines that stand still, are paused, are killed, while a command runs."""
    alone = d.monitors()
    other = d.api.create("tiny")
    mine = until(30, "its monitor is found", lambda: d.monitors() - alone)
    results = []
    thread = threading.Thread(target=lambda: results.append(d.api.raw("POST", f"/sandboxes/{other}/exec", {"cmd": "sleep 300", "timeout_ms": 1000})))
    d.api.exec(other, "true")
    for pid in mine:
        os.kill(pid, signal.SIGSTOP)
    thread.start()
    began = time.monotonic()
    d.api.exec(sid, "true")
    tap.ok(thread.is_alive(), f"a machine that stands still delays nobody else ({time.monotonic() - began:.2f} s)")
    thread.join(60)
    tap.ok(results and results[0][0] == 504, "who waits for it is told", results)
    for pid in mine:
        os.kill(pid, signal.SIGCONT)
    for what, do in (("paused", lambda: d.api("POST", f"/sandboxes/{other}/pause")), ("killed", lambda: d.api.kill(other))):
        results.clear()
        thread = threading.Thread(target=lambda: results.append(d.api.raw("POST", f"/sandboxes/{other}/exec", {"cmd": "echo on >/tmp/on; sleep 300"})))
        thread.start()
        until(30, "it runs", lambda: d.api("POST", f"/sandboxes/{other}/exec", {"cmd": "test -e /tmp/on"})["exit_code"] == 0)
        do()
        thread.join(30)
        tap.ok(results and results[0][0] == 503, f"a command in a machine that is {what} ends with an error", results)
        if what == "paused":
            status, _, body = d.api.raw("POST", f"/sandboxes/{other}/exec", {"cmd": "true"})
            tap.ok(status == 409 and b"paused" in body, "the next request to a paused sandbox is told why", status, body)
            d.api("POST", f"/sandboxes/{other}/resume", {"timeout": 60})
            tap.equal(running(other, "sleep 300"), 1, "the command goes on")
            d.api.exec(other, "rm /tmp/on")


try:
    d.start()
    sid = d.api.create("tiny", timeout=1800, envVars={"MINE": "of the sandbox"})
    tap.equal(d.api.exec(sid, "echo $TINY, $MINE"), "yes it is, of the sandbox\n", "variables of the template and of the sandbox")
    for test in (big_output, files, signed, echo, ends, kept, machines):
        try:
            test(sid)
        except Exception as e:
            tap.ok(False, test.__name__, repr(e))
finally:
    d.stop()
tap.finish()
