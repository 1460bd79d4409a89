# SPDX-License-Identifier: Apache-2.0
"""pool_ports.sh's part that asks: by TCP, as strangers do, with a host name for each port."""
import base64, http.client, json, os, socket, struct, subprocess, sys
from pool_lib import PARBAKE, Daemon, Tap, until

tap = Tap()
DOMAIN = "boxes.example.org"
with socket.socket() as probe:  # a port that is free now
    probe.bind(("127.0.0.1", 0))
    tcp = probe.getsockname()[1]
made = subprocess.run([PARBAKE, "pool", "key", "me"], capture_output=True, text=True, check=True).stdout
key = next(word for word in made.split() if word.startswith("e2b_"))
other = subprocess.run([PARBAKE, "pool", "key", "other"], capture_output=True, text=True, check=True).stdout
other_key = next(word for word in other.split() if word.startswith("e2b_"))
sections = "".join(text[text.index("[key"):] for text in (made, other))
daemon = Daemon(sys.argv[1], f"domain = {DOMAIN}\nlisten = 127.0.0.1:{tcp}\n{sections}")


def api(method, path, body=None):
    conn = http.client.HTTPConnection("127.0.0.1", tcp, timeout=60)
    conn.request(method, path, json.dumps(body) if body is not None else None, {"X-API-Key": key, "Content-Type": "application/json"})
    answer = conn.getresponse()
    data = answer.read()
    assert answer.status < 300, (method, path, answer.status, data)
    return json.loads(data) if data else None


class Box:
    def __init__(self, **spec):
        self.facts = api("POST", "/sandboxes", {"templateID": "tiny", **spec})
        self.id = self.facts["sandboxID"]
        source = open(os.path.join(os.path.dirname(__file__), "pool_ports.pl")).read()
        self.write("/tmp/server.pl", source)
        self.serve()

    def serve(self):
        """A command with a tag goes on when nobody follows it any more."""
        message = json.dumps({"process": {"cmd": "perl", "args": ["/tmp/server.pl", "8080"]}, "tag": "server"}).encode()
        conn = http.client.HTTPConnection("127.0.0.1", tcp, timeout=60)
        conn.request("POST", f"/sandboxes/{self.id}/process.Process/Start", struct.pack(">BI", 0, len(message)) + message,
                     {"X-API-Key": key, "Content-Type": "application/connect+json"})
        answer, said = conn.getresponse(), b""
        while base64.b64encode(b"ready\n") not in said:
            piece = answer.read1()
            assert piece, said
            said += piece
        conn.close()

    def write(self, path, text):
        conn = http.client.HTTPConnection("127.0.0.1", tcp, timeout=60)
        conn.request("POST", f"/sandboxes/{self.id}/files?path={path}", text, {"X-API-Key": key, "Content-Type": "application/octet-stream"})
        assert conn.getresponse().status < 300

    def run(self, line):
        return api("POST", f"/sandboxes/{self.id}/exec", {"cmd": line})["stdout"]

    def host(self, port=8080):
        return f"{port}-{self.id}.{DOMAIN}"

    def ask(self, path, method="GET", body=None, port=8080, conn=None, **headers):
        """Status, headers, body; what was cut says so."""
        conn = conn or http.client.HTTPConnection("127.0.0.1", tcp, timeout=60)
        conn.request(method, path, body, {"Host": self.host(port), **{k.replace("_", "-"): v for k, v in headers.items()}},
                     encode_chunked=headers.get("Transfer_Encoding") == "chunked")
        answer = conn.getresponse()
        try:
            return answer.status, dict(answer.getheaders()), answer.read()
        except http.client.IncompleteRead as e:
            return answer.status, "cut", e.partial


def shapes(box):
    status, headers, head = box.ask("/head?a=%20b&c", X_Mine="1", Connection="keep-alive, X-Private", X_Private="2", X_API_Key="mine", Authorization=f"Bearer {key}")
    head = head.decode()
    tap.equal((status, headers.get("X-Method")), (200, "GET"), "a server in a sandbox answers")
    tap.ok(box.host() in head and "X-Mine: 1" in head, "a server sees the host and the headers that were sent", head)
    tap.ok("X-Private" not in head and "keep-alive" not in head, "a server does not see headers for the connection", head)
    tap.ok(key not in head and "mine" not in head, "a server does not see the pool's keys", head)
    tap.ok("Authorization: Bearer of-its-own" in box.ask("/head", Authorization="Bearer of-its-own")[2].decode(), "a key of its own it does see")
    tap.equal(box.ask("/head", "HEAD")[::2], (200, b""), "HEAD")
    sent = os.urandom(300000)
    tap.equal(box.ask("/body", "POST", sent)[::2], (201, sent), "a body goes there and back")
    pieces = [sent[:100000], sent[100000:100001], sent[100001:]]
    tap.equal(box.ask("/body", "POST", iter(pieces), Transfer_Encoding="chunked")[::2], (201, sent), "in chunks, too")
    status, headers, data = box.ask("/chunks")
    tap.equal((status, data), (200, b"hello world"), "an answer in chunks")
    tap.ok("X-Hop" not in headers, "without what was for the connection alone", headers)
    tap.equal(box.ask("/to-the-end")[::2], (200, b"until it closes"), "one that ends with its connection")
    tap.equal(box.ask("/empty")[::2], (204, b""), "one without a body")
    tap.equal(box.ask("/continue")[::2], (200, b"ok"), "one that is announced")
    tap.equal(len(box.ask("/big")[2]), 5000000, "a long one")
    conn = http.client.HTTPConnection("127.0.0.1", tcp, timeout=60)
    tap.equal([box.ask("/body", "POST", b"x" * n, conn=conn)[2] for n in (1, 2)], [b"x", b"xx"], "two on one connection")


def streams(box):
    conn = http.client.HTTPConnection("127.0.0.1", tcp, timeout=60)
    conn.request("GET", "/events", headers={"Host": box.host()})
    answer = conn.getresponse()
    seen = []
    for n in (1, 2, 3):
        seen.append(answer.readline() + answer.readline())
        box.run(f"touch /tmp/event-{n}")
    tap.equal((answer.getheader("Content-Type"), seen), ("text/event-stream", [b"data: %d\n\n" % n for n in (1, 2, 3)]), "events come one by one")

    with socket.create_connection(("127.0.0.1", tcp), 60) as s:
        s.sendall(f"GET /upgrade HTTP/1.1\r\nHost: {box.host()}\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n".encode())
        f = s.makefile("rb")
        head = b"".join(iter(f.readline, b"\r\n"))
        tap.ok(head.startswith(b"HTTP/1.1 101"), "a connection goes over to another protocol", head)
        tap.equal(f.readline(), b"welcome\n", "what came with the answer is not lost")
        s.sendall(b"hello\n")
        tap.equal(f.readline(), b"HELLO\n", "bytes go both ways after an upgrade")
        s.sendall(b"a" * 1000000 + b"\n")
        tap.equal(f.readline(), b"A" * 1000000 + b"\n", "many of them")
        s.shutdown(socket.SHUT_WR)
        tap.equal(f.read(), b"", "until one side ends")


def harm(box):
    tap.equal(box.ask("/", port=81)[0], 502, "where nothing listens it is 502")
    tap.ok(b"port is not open" in box.ask("/", port=81)[2], "in E2B's words")
    for path, what in (("/garbage", "no HTTP"), ("/twice", "two lengths"), ("/long", "a head without end")):
        tap.equal(box.ask(path)[0], 502, f"a server that says {what} is refused")
    tap.equal(box.ask("/cut")[1:], ("cut", b"not all of it"), "an answer that is cut is seen to be")
    conn = http.client.HTTPConnection("127.0.0.1", tcp, timeout=60)
    tap.equal([box.ask("/two", conn=conn)[2], box.ask("/body", "POST", b"mine", conn=conn)[2]], [b"ok", b"mine"], "a second answer in the first poses as no other's")
    waiting = []
    for _ in range(80):
        s = socket.create_connection(("127.0.0.1", tcp), 60)
        s.sendall(f"GET /silent HTTP/1.1\r\nHost: {box.host()}\r\n\r\n".encode())
        waiting.append(s)
    tap.ok(until(60, "too many are refused", lambda: box.ask("/head")[0] == 429), "one sandbox's requests have a bound")
    neighbour = Box()
    tap.equal(neighbour.ask("/empty")[0], 204, "which is its own")
    tap.equal(box.run("echo fine"), "fine\n", "a sandbox with all its connections in use has room for commands")
    for s in waiting:
        s.close()
    tap.ok(until(60, "they are over", lambda: box.ask("/empty")[0] == 204), "who hangs up makes room")


def doors():
    box = Box(network={"allowPublicTraffic": False, "maskRequestHost": "localhost:${PORT}"})
    tap.equal(box.ask("/empty")[0], 403, "a closed sandbox's port wants a token")
    tap.equal(box.ask("/empty", E2b_Traffic_Access_Token="wrong")[0], 403, "the right one")
    tap.equal(box.ask("/empty", X_API_Key=other_key)[0], 403, "not another's key")
    status, _, head = box.ask("/head", E2b_Traffic_Access_Token=box.facts["trafficAccessToken"])
    tap.equal(status, 200, "a guarded port is open with the traffic token")
    tap.ok(b"Host: localhost:8080\r\n" in head, "the host is masked", head)
    tap.ok(box.facts["trafficAccessToken"].encode() not in head, "the traffic token is not told to the server")
    tap.equal(box.ask("/empty", X_API_Key=key)[0], 204, "the key of a guarded sandbox opens its port, too")
    tap.equal(api("GET", f"/sandboxes/{box.id}")["network"], {"allowPublicTraffic": False, "maskRequestHost": "localhost:${PORT}"}, "a guarded sandbox's facts say so")

    box = Box(autoPause=True, autoResume={"enabled": True})
    api("POST", f"/sandboxes/{box.id}/timeout", {"timeout": 0})
    status, _, data = box.ask("/body", "POST", b"wake up")
    tap.ok(status == 201 or b"port is not open" in data, "a request for a port wakes what sleeps", status, data)
    tap.equal(api("GET", f"/sandboxes/{box.id}")["state"], "running", "a sandbox that a request woke runs")
    if status != 201:  # its server's command ended with the pause
        box.serve()
    conn = http.client.HTTPConnection("127.0.0.1", tcp, timeout=60)
    conn.request("GET", "/silent", headers={"Host": box.host()})
    until(60, "it is asked", lambda: box.run("cat /proc/[0-9]*/cmdline").count("server.pl") == 2)
    api("DELETE", f"/sandboxes/{box.id}")
    try:
        status = conn.getresponse().status
    except (http.client.HTTPException, OSError):
        status = 502
    tap.equal(status, 502, "one that is killed while it is asked answers nobody")
    tap.equal(box.ask("/empty")[0], 502, "a port of a sandbox that is gone is not found")


daemon.start()
try:
    box = Box()
    shapes(box)
    streams(box)
    harm(box)
    doors()
finally:
    left = daemon.stop()
tap.ok(not left, "nothing is left", left)
tap.finish()
