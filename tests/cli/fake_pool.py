# SPDX-License-Identifier: Apache-2.0
"""A pool's API without machines: `fake_pool.py SOCKET [KEY]`. Commands run on the host, below a directory of its own.

What it is asked stands in SOCKET.log, a JSON object a line. Ids that begin with "bad" misbehave as the rest of their name says.
"""
import base64, json, os, pty, re, select, signal, socketserver, struct, subprocess, sys, threading, time
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit

SOCKET, KEY = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
FILES = SOCKET + ".files"
os.makedirs(FILES, exist_ok=True)
lock = threading.Lock()
sandboxes, processes = {}, {}
counter = 0


def stamp(at):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + ".250Z"


def new(template, body, state="running"):
    global counter
    with lock:
        counter += 1
        sid = body.get("id") or f"sb{counter:04d}{template[:3]}"
        sandboxes[sid] = {"mode": "spare" if counter % 2 else "shell", "sandboxID": sid, "templateID": template, "alias": template, "clientID": "x", "state": state,
                          "startedAt": stamp(time.time()), "endAt": stamp(time.time() + body.get("timeout", 300)),
                          "cpuCount": 1, "memoryMB": 256, "diskSizeMB": 512, "metadata": body.get("metadata", {})}
        return sandboxes[sid]


def words(obj, plain, coded):
    """A list of strings, or of bytes in base 64."""
    return [base64.b64decode(w) for w in obj[coded]] if coded in obj else obj.get(plain)


def variables(obj, plain, coded):
    pairs = [base64.b64decode(v).split(b"=", 1) for v in obj[coded]] if coded in obj else obj.get(plain, {}).items()
    return {**os.environb, **{os.fsencode(k): os.fsencode(v) for k, v in pairs}}


def place(obj, coded):
    return base64.b64decode(obj[coded]) if coded in obj else obj.get("cwd")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self):
        return "unix"

    def log_message(self, *args):
        pass

    def body(self):
        if self.command == "POST" and "/badcut/files" in self.path:  # the file that is being sent shrinks meanwhile
            os.truncate(parse_qs(urlsplit(self.path).query)["path"][0], 1000)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def reply(self, status, value=None, headers=()):
        data = b"" if value is None else value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in headers:
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def error(self, status, message):
        self.reply(status, {"code": status, "message": message})

    def begin(self, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def line(self, **value):
        self.chunk(json.dumps(value).encode() + b"\n")

    def frame(self, value, flags=0):
        text = json.dumps(value).encode()
        # in two pieces: who reads must put them together
        data = struct.pack(">BI", flags, len(text)) + text
        self.chunk(data[:3])
        self.chunk(data[3:])

    def handle_any(self):
        raw = self.body()
        url = urlsplit(self.path)
        query = {k: v[0] for k, v in parse_qs(url.query, keep_blank_values=True).items()}
        kind = self.headers.get("Content-Type", "")
        body = json.loads(raw) if raw and kind == "application/json" else {}
        with lock:
            with open(SOCKET + ".log", "a") as log:
                print(json.dumps({"method": self.command, "path": url.path, "query": query, "body": body,
                                  "headers": dict(self.headers)}, sort_keys=True), file=log)
        if KEY and self.headers.get("X-API-Key") != KEY:
            return self.error(401, "no valid API key")
        path = unquote(url.path)
        if (self.command, path) == ("POST", "/sandboxes"):
            if body["templateID"] == "none":
                return self.error(404, "there is no template \"none\": bake it")
            if body["templateID"] == "html":
                return self.reply(502, b"<html>bad gateway</html>")
            return self.reply(201, new(body["templateID"], body))
        if path == "/v2/sandboxes":
            states = query.get("state", "running,paused").split(",")
            ids = sorted(s for s in sandboxes if sandboxes[s]["state"] in states)
            at, step = int(query.get("nextToken", 0)), 2  # small pages
            more = [("X-Next-Token", str(at + step))] if at + step < len(ids) else []
            return self.reply(200, [sandboxes[s] for s in ids[at:at + step]], more)
        if path == "/v1/pool":
            return self.reply(200, {"templates": [{"name": "base", "tag": "latest", "spares": 2, "want_spares": 3, "standbys": 1,
                                                   "want_standbys": 1, "hits_spare": 8, "hits_standby": 1, "misses": 1, "making": 1,
                                                   "sandboxes": len(sandboxes), "failures": 0, "error": ""}]})
        match = re.match(r"^/sandboxes/([^/]+)(/.*)?$", path)
        if not match:
            return self.error(404, "no such route")
        sid, rest = match[1], match[2] or ""
        if sid not in sandboxes:
            return self.error(404, f"there is no sandbox {sid}")
        self.sandbox(sid, rest, body, raw, query)

    do_GET = do_POST = do_DELETE = handle_any

    def sandbox(self, sid, rest, body, raw, query):
        sb = sandboxes[sid]
        if rest == "" and self.command == "GET":
            return self.reply(200, sb)
        if rest == "" and self.command == "DELETE":
            if sid == "badkill":
                return self.error(500, "the machine is not gone after 10 s")
            del sandboxes[sid]
            return self.reply(204)
        if rest == "/pause":
            if sb["state"] == "paused":
                return self.error(409, f"{sid} is paused already")
            sb["state"] = "paused"
            return self.reply(204)
        if rest == "/resume":
            sb["state"] = "running"
            return self.reply(201, sb)
        if rest == "/timeout":
            sb["endAt"] = stamp(time.time() + body["timeout"])
            return self.reply(204)
        if rest == "/snapshots":
            return self.reply(201, {"snapshotID": "snap1", "names": [body["name"]] if "name" in body else []})
        if rest == "/fork":
            made = [{"sandbox": new("fork", {})} for _ in range(body["count"])]
            if sid == "badfork":
                made[-1] = {"error": {"code": 507, "message": "no space left"}}
            return self.reply(201, made)
        if rest == "/logs":
            return self.reply(200, {"logs": [{"timestamp": stamp(0), "line": "first"}, {"timestamp": stamp(0), "line": "second"}]})
        if rest == "/metrics":
            if sid == "badmetrics":
                time.sleep(10)
            return self.reply(200, [{"cpuUsedPct": 12.5, "cpuCount": 1, "memUsed": 3 << 20, "memPrivate": 3 << 20, "memShared": 40 << 20,
                                     "memTotal": 256 << 20, "diskUsed": 1 << 20, "diskTotal": 512 << 20}])
        if rest == "/exec":
            return self.run_exec(sid, body)
        if rest == "/execute":
            return self.run_code(sid, body)
        if rest == "/files":
            name = os.path.join(FILES, query["path"].lstrip("/").replace("/", "_"))
            if self.command == "POST":
                with open(name, "wb") as out:
                    out.write(raw)
                return self.reply(200, [{"path": query["path"], "name": os.path.basename(query["path"]), "type": "file"}])
            if not os.path.exists(name):
                return self.error(404, f"{query['path']}: no such file")
            data = open(name, "rb").read()
            if sid == "badcut":
                self.send_response(200)
                self.send_header("Content-Length", str(len(data) + 1))
                self.end_headers()
                self.wfile.write(data)
                self.close_connection = True
                return
            return self.reply(200, data)
        if rest.startswith("/process.Process/"):
            return self.process(sid, rest.rsplit("/", 1)[1], body, raw)
        self.error(404, "no such route")

    def run_exec(self, sid, body):
        if not body.get("stream"):
            return self.reply(200, {"exit_code": subprocess.run(body["argv"]).returncode, "signal": None})
        if sid == "badline":
            self.begin("application/x-ndjson")
            return self.chunk(b"x" * (16 << 20))
        if sid == "badend":
            self.begin("application/x-ndjson")
            self.line(type="start", pid=1)
            return self.chunk(b"")
        self.begin("application/x-ndjson")
        self.line(type="start", pid=1)
        argv = words(body, "argv", "argv_base64") or ["/bin/sh", "-c", body["cmd"]]
        env = variables(body, "env", "env_base64")
        try:
            p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
                                 cwd=place(body, "cwd_base64"))
        except FileNotFoundError:
            self.line(type="error", code="invalid_argument", reason="program_not_found", message=f"{argv[0]}: not found")
            return self.chunk(b"")
        timed_out = False
        try:
            out, err = p.communicate(timeout=body.get("timeout_ms", 60000) / 1000)
        except subprocess.TimeoutExpired:
            p.kill()
            out, err = p.communicate()
            timed_out = True
        for i in range(0, len(out), 4096):
            self.line(type="stdout", data=base64.b64encode(out[i:i + 4096]).decode())
        if err:
            self.line(type="stderr", data=base64.b64encode(err).decode())
        self.line(type="end", exit_code=None if p.returncode < 0 else p.returncode, signal=-p.returncode if p.returncode < 0 else None,
                  timed_out=timed_out, stdout_cut=sid == "badout", stderr_cut=False, stdout_bytes=len(out), stderr_bytes=len(err))
        self.chunk(b"")

    def run_code(self, sid, body):
        self.begin("application/x-ndjson")
        if "raise" in body["code"]:
            self.line(type="error", name="ValueError", value="no", traceback="Traceback: ValueError: no")
        else:
            self.line(type="stdout", text="printed\n", timestamp=1)
            self.line(type="stderr", text="warned\n", timestamp=1)
            self.line(type="result", text=body["code"], is_main_result=True)
        self.line(type="number_of_executions", execution_count=1)
        self.line(type="end_of_execution")
        self.chunk(b"")

    def process(self, sid, method, body, raw):
        if method == "Start":
            return self.start(json.loads(raw[5:]))
        p, fd = processes[body["process"]["pid"]]
        if method == "SendInput":
            data = body["input"].get("stdin") or body["input"].get("pty")
            data = base64.b64decode(data)
            try:
                while data:
                    data = data[os.write(fd, data):]
            except OSError:
                return self.reply(404, {"code": "not_found", "message": "it reads no more"})
        elif method == "CloseStdin":
            p.stdin.close()
        elif method == "Update":
            import fcntl, termios
            size = body["pty"]["size"]
            fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", size["rows"], size["cols"], 0, 0))
        self.reply(200, {})

    def start(self, spec):
        config, size = spec["process"], spec.get("pty", {}).get("size")
        env = variables(config, "envs", "envsBase64")
        argv = words(config, "args", "argvBase64")
        argv = argv if "argvBase64" in config else [config["cmd"]] + argv
        self.begin("application/connect+json")
        if size:
            import fcntl, termios
            master, slave = pty.openpty()
            fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", size["rows"], size["cols"], 0, 0))
            p = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, env=env, cwd=place(config, "cwdBase64"), start_new_session=True,
                                 preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
            os.close(slave)
            fds, processes[p.pid] = {master: "pty"}, (p, master)
        else:
            try:
                p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
                                     cwd=place(config, "cwdBase64"))
            except FileNotFoundError:
                self.frame({"error": {"code": "invalid_argument", "reason": "program_not_found", "message": f"{argv[0]}: not found"}}, 2)
                return self.chunk(b"")
            fds, processes[p.pid] = {p.stdout.fileno(): "stdout", p.stderr.fileno(): "stderr"}, (p, p.stdin.fileno())
        self.frame({"event": {"start": {"pid": p.pid}}})
        while fds:
            for fd in select.select(list(fds), [], [])[0]:
                try:
                    data = os.read(fd, 4096)
                except OSError:
                    data = b""
                if data:
                    self.frame({"event": {"data": {fds[fd]: base64.b64encode(data).decode()}}})
                else:
                    del fds[fd]
        p.wait()
        status = f"signal: {signal.strsignal(-p.returncode)}" if p.returncode < 0 else f"exit status {p.returncode}"
        self.frame({"event": {"end": {"exitCode": p.returncode, "exited": p.returncode >= 0, "status": status}}})
        self.frame({}, 2)
        self.chunk(b"")


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128


if os.path.exists(SOCKET):
    os.unlink(SOCKET)
for bad in ("badline", "badend", "badout", "badcut", "badkill", "badfork", "badmetrics"):
    new("base", {"id": bad})
Server(SOCKET, Handler).serve_forever()
