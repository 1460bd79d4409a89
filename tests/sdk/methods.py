# SPDX-License-Identifier: Apache-2.0
"""Every method of E2B's Python package, sync or async, against a pool: methods.py sync|async. TAP."""
import asyncio, inspect, io, os, sys, time, urllib.error, urllib.parse, urllib.request, uuid
import e2b

kind = sys.argv[1]
Sandbox = e2b.Sandbox if kind == "sync" else e2b.AsyncSandbox
n = bad = 0


def ok(good, name, *details):
    global n, bad
    n += 1
    bad += not good
    print(f"{'ok' if good else 'not ok'} {n} - {kind}: {name}", flush=True)
    for line in () if good else details:
        print("# " + str(line).replace("\n", "\n# ")[:2000], flush=True)


async def w(value):
    """What a method gives, now or when it has been waited for."""
    return await value if inspect.isawaitable(value) else value


async def check(name, fn, want=lambda value: True):
    """One method: @fn's value is as @want says, or the error is shown."""
    try:
        value = await w(fn())
        ok(want(value) if callable(want) else value == want, name, value)
        return value
    except Exception as e:  # each is a failed check
        ok(False, name, repr(e))
        return None


async def raises(name, kind_of, fn):
    try:
        ok(False, name, await w(fn()))
    except kind_of as e:
        ok(True, name, e)
    except Exception as e:
        ok(False, name, repr(e))


def ask(url, data=None, host=None, headers=None):
    """Status and body of an answer by the pool to a request that is no package's."""
    at = urllib.parse.urlsplit(url)
    request = urllib.request.Request(os.environ["E2B_SANDBOX_URL"] + at.path + ("?" + at.query if at.query else ""), data, headers or {})
    request.add_header("Host", host or at.netloc)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as e:
        return e.code, e.read()


async def lifecycle():
    s = await check("Sandbox.create", lambda: Sandbox.create("base", timeout=300, metadata={"by": kind}, envs={"MINE": "yes"}))
    if s is None:
        return None
    await check("is_running", s.is_running, True)
    await check("get_info", s.get_info, lambda i: i.sandbox_id == s.sandbox_id and i.template_id == "base" and i.metadata == {"by": kind})
    await check("set_timeout", lambda: s.set_timeout(600))
    await check("get_metrics", s.get_metrics, lambda m: m and m[0].mem_total > 0)
    await check("Sandbox.connect", lambda: Sandbox.connect(s.sandbox_id), lambda other: other.sandbox_id == s.sandbox_id)
    found = Sandbox.list(query=e2b.SandboxQuery(metadata={"by": kind}))
    await check("Sandbox.list", found.next_items, lambda items: s.sandbox_id in [i.sandbox_id for i in items])
    await check("Sandbox.get_info", lambda: Sandbox.get_info(s.sandbox_id), lambda i: i.sandbox_id == s.sandbox_id)
    await check("Sandbox.set_timeout", lambda: Sandbox.set_timeout(s.sandbox_id, 900))
    await check("Sandbox.get_metrics", lambda: Sandbox.get_metrics(s.sandbox_id), lambda m: m and m[0].cpu_count > 0)
    ok(s.get_host(3000) == f"3000-{s.sandbox_id}.boxes.example.org", "get_host", s.get_host(3000))
    return s


async def commands(s):
    await check("commands.run", lambda: s.commands.run("echo out; echo err >&2; echo $MINE"), lambda r: (r.stdout, r.stderr, r.exit_code) == ("out\nyes\n", "err\n", 0))
    await check("commands.run, with envs and cwd", lambda: s.commands.run("echo $A; pwd", envs={"A": "b"}, cwd="/tmp"), lambda r: r.stdout == "b\n/tmp\n")
    await raises("commands.run that fails", e2b.CommandExitException, lambda: s.commands.run("exit 3"))
    await raises("commands.run that takes too long", e2b.TimeoutException, lambda: s.commands.run("sleep 60", timeout=1))
    heard = []
    await check("commands.run, told as it comes", lambda: s.commands.run("echo a; echo b", on_stdout=heard.append), lambda r: r.exit_code == 0)
    ok("".join(heard) == "a\nb\n", "on_stdout", heard)
    h = await check("commands.run in the background", lambda: s.commands.run("cat", background=True, stdin=True))
    if h is None:
        return
    await check("commands.list", s.commands.list, lambda found: h.pid in [p.pid for p in found])
    await check("commands.send_stdin", lambda: s.commands.send_stdin(h.pid, "hello\n"))
    other = await check("commands.connect", lambda: s.commands.connect(h.pid), lambda c: c.pid == h.pid)
    if other is not None and hasattr(other, "disconnect"):
        await check("CommandHandle.disconnect", other.disconnect)
    if hasattr(s.commands, "close_stdin"):
        await check("commands.close_stdin", lambda: s.commands.close_stdin(h.pid))
        await check("CommandHandle.wait", h.wait, lambda r: r.stdout == "hello\n" and r.exit_code == 0)
    h = await check("a command for its handle", lambda: s.commands.run("cat", background=True, stdin=True))
    if h is not None and hasattr(h, "close_stdin"):
        await check("CommandHandle.send_stdin", lambda: h.send_stdin("by handle"))
        await check("CommandHandle.close_stdin", h.close_stdin)
        await check("its output", h.wait, lambda r: r.stdout == "by handle")
    h = await check("a command to be killed", lambda: s.commands.run("sleep 600", background=True))
    await check("CommandHandle.kill", h.kill, True)
    h = await check("another command", lambda: s.commands.run("sleep 600", background=True))
    await check("commands.kill", lambda: s.commands.kill(h.pid), True)
    await raises("its end", e2b.CommandExitException, h.wait)
    await check("commands.kill of none", lambda: s.commands.kill(999999), False)


async def users(s):
    """What names nobody is the template's user's."""
    await check("commands run as the template's user", lambda: s.commands.run("id -un; pwd; echo $HOME; sudo -n id -u"), lambda r: r.stdout == "user\n/home/user\n/home/user\n0\n" and r.stderr == "")
    await check("or as another", lambda: s.commands.run("id -un; pwd", user="root"), lambda r: r.stdout == "root\n/root\n")
    await check("a relative path is below the home", lambda: s.files.write("mine/a", "a"), lambda i: i.path == "/home/user/mine/a")
    await check("files are the user's", lambda: s.files.get_info("mine"), lambda i: (i.owner, i.group) == ("user", "user"))
    await check("in lists, too", lambda: s.files.list("mine"), lambda found: [(i.path, i.owner, i.group) for i in found] == [("/home/user/mine/a", "user", "user")])
    await check("or another's", lambda: s.files.write("b", "b", user="root"), lambda i: i.path == "/root/b")
    await check("who is told", lambda: s.files.get_info("/root/b"), lambda i: i.owner == "root")


def takes(fn, name):
    return name in inspect.signature(fn).parameters


async def watched(s):
    f, got = s.files, []
    more = {"include_entry": True} if takes(f.watch_dir, "include_entry") else {}
    await w(f.make_dir("/tmp/watched/below"))
    if kind == "sync":
        h = await check("files.watch_dir", lambda: f.watch_dir("/tmp/watched", recursive=True, **more))
    else:
        h = await check("files.watch_dir", lambda: f.watch_dir("/tmp/watched", got.append, recursive=True, timeout=0, **more))
    if h is None:
        return
    await w(f.write("/tmp/watched/below/x", "x"))
    await w(s.commands.run("cd /tmp/watched && chmod 600 below/x && mv below/x below/z && rm below/z && mkdir new && touch new/y"))
    want = {("below/x", "create"), ("below/x", "write"), ("below/x", "chmod"), ("below/x", "rename"), ("below/z", "create"), ("below/z", "remove"), ("new", "create"), ("new/y", "create")}
    told = lambda: {(e.name, e.type.value) for e in got}
    deadline = time.monotonic() + 60
    while not want <= told() and time.monotonic() < deadline:
        if kind == "sync":
            got.extend(h.get_new_events())
        await asyncio.sleep(0.1)
    ok(want <= told(), "tells what happens in it and below", sorted(want - told()), got)
    ok(not any(".parbake" in e.name for e in got), "and not how an upload is made", got)
    if more:
        ok(any(e.entry and e.entry.path == "/tmp/watched/below/x" and e.entry.owner == "user" for e in got), "with what it is", got)
    await check("its stop", h.stop)
    await raises("files.watch_dir of none", e2b.NotFoundException, lambda: f.watch_dir("/tmp/none", **({} if kind == "sync" else {"on_event": got.append})))
    if not takes(f.write, "metadata"):
        return
    await check("files.write with metadata", lambda: f.write("/home/user/marked", "m", metadata={"Team": "a=b", "n": "1"}), lambda i: i.metadata == {"team": "a=b", "n": "1"})
    await check("which is told", lambda: f.get_info("marked"), lambda i: i.metadata == {"team": "a=b", "n": "1"})
    await check("in lists, too", lambda: f.list("/home/user"), lambda found: [i.metadata for i in found if i.name == "marked"] == [{"team": "a=b", "n": "1"}])
    await check("and after a rename", lambda: f.rename("marked", "moved"), lambda i: i.metadata == {"team": "a=b", "n": "1"})
    await check("files.write without", lambda: f.write("moved", "m"), lambda i: i.metadata is None)
    await check("has cleared it", lambda: f.get_info("moved"), lambda i: i.metadata is None)


async def terminals(s):
    heard = bytearray()
    if kind == "sync":
        h = await check("pty.create", lambda: s.pty.create(e2b.PtySize(24, 80)))
        wait = lambda: h.wait(on_pty=heard.extend)
    else:
        h = await check("pty.create", lambda: s.pty.create(e2b.PtySize(24, 80), on_data=heard.extend))
        wait = lambda: h.wait()
    if h is None:
        return
    await check("pty.resize", lambda: s.pty.resize(h.pid, e2b.PtySize(30, 100)))
    await check("pty.send_stdin", lambda: s.pty.send_stdin(h.pid, b"stty size; exit 0\n"))
    await check("its end", wait, lambda r: r.exit_code == 0)
    ok(b"30 100" in heard, "its size", bytes(heard))
    first = await check("a pty to connect to", lambda: s.pty.create(e2b.PtySize(24, 80), **({} if kind == "sync" else {"on_data": lambda data: None})))
    heard.clear()
    if kind == "sync":
        h = await check("pty.connect", lambda: s.pty.connect(first.pid))
    else:
        h = await check("pty.connect", lambda: s.pty.connect(first.pid, on_data=heard.extend))
    await check("input to it", lambda: s.pty.send_stdin(first.pid, b"echo $((6*7)); exit 0\n"))
    await check("the end of what was connected to", wait, lambda r: r.exit_code == 0)
    ok(b"42" in heard, "its output", bytes(heard))
    h = await check("another pty", lambda: s.pty.create(e2b.PtySize(24, 80), **({} if kind == "sync" else {"on_data": heard.extend})))
    await check("pty.kill", lambda: s.pty.kill(h.pid), True)


async def files(s):
    f = s.files
    await check("files.make_dir", lambda: f.make_dir("/tmp/d/e"), True)
    await check("files.make_dir of what is there", lambda: f.make_dir("/tmp/d/e"), False)
    await check("files.write", lambda: f.write("/tmp/d/a.txt", "text"), lambda i: i.path == "/tmp/d/a.txt")
    await check("files.write_files", lambda: f.write_files([{"path": "/tmp/d/b", "data": b"\0\1"}, {"path": "/tmp/d/c", "data": "c"}]), lambda r: len(r) == 2)
    await check("files.read", lambda: f.read("/tmp/d/a.txt"), "text")
    await check("files.read of bytes", lambda: f.read("/tmp/d/b", format="bytes"), lambda b: bytes(b) == b"\0\1")
    async def pieces():
        stream = await w(f.read("/tmp/d/b", format="stream"))
        return b"".join([piece async for piece in stream] if hasattr(stream, "__aiter__") else list(stream))
    await check("files.read of a stream", pieces, b"\0\1")
    big = bytes(range(256)) * 4096
    await check("files.write of what is read", lambda: f.write("/tmp/big", io.BytesIO(big)), lambda i: i.name == "big")
    await check("files.read of it, compressed", lambda: f.read("/tmp/big", format="bytes", gzip=True), lambda b: bytes(b) == big)
    await check("files.write, compressed", lambda: f.write("/tmp/big", big[1:], gzip=True, use_octet_stream=True))
    await check("it came whole", lambda: f.read("/tmp/big", format="bytes"), lambda b: bytes(b) == big[1:])
    await check("files.exists", lambda: f.exists("/tmp/d/a.txt"), True)
    await check("files.exists of none", lambda: f.exists("/tmp/d/none"), False)
    await check("files.get_info", lambda: f.get_info("/tmp/d/a.txt"), lambda i: i.size == 4 and i.name == "a.txt")
    await check("files.list", lambda: f.list("/tmp/d"), lambda found: {i.name for i in found} == {"a.txt", "b", "c", "e"})
    await check("files.rename", lambda: f.rename("/tmp/d/c", "/tmp/d/moved"), lambda i: i.path == "/tmp/d/moved")
    await check("files.remove", lambda: f.remove("/tmp/d/moved"))
    await raises("files.read of none", e2b.NotFoundException, lambda: f.read("/tmp/d/none"))


async def addresses(s):
    """What needs no package: addresses of files and of ports."""
    box = await check("Sandbox.create, secure", lambda: Sandbox.create("base", timeout=300, secure=True))
    if box is None:
        return
    envd = box.get_host(49983)
    ok(ask(box.upload_url("/tmp/u"), b"sent", envd, {"Content-Type": "application/octet-stream"})[0] == 200, "upload_url")
    await check("it is there", lambda: box.files.read("/tmp/u"), "sent")
    answer = ask(box.download_url("/tmp/u", use_signature_expiration=60), host=envd)
    ok(answer == (200, b"sent"), "download_url", answer)
    answer = ask(box.download_url("/tmp/u", use_signature_expiration=-60), host=envd)
    ok(answer[0] == 401, "one that has expired", answer)
    answer = ask(box.download_url("/tmp/u").replace("v1_", "v1_x"), host=envd)
    ok(answer[0] == 401, "one that is signed wrongly", answer)
    answer = ask("/", host=box.get_host(3000))
    ok(answer[0] == 502 and b"3000" in answer[1], "a port where nothing listens", answer)
    h = await check("a server", lambda: box.commands.run("python3 -u -m http.server 3000 --bind 127.0.0.1 -d /tmp", background=True, timeout=0))
    deadline = time.monotonic() + 60
    while (answer := ask("/u", host=box.get_host(3000)))[0] == 502 and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    ok(answer == (200, b"sent"), "get_host leads to it", answer)
    await check("git.init", lambda: box.git.init("/tmp/repo", initial_branch="main"))
    await check("git.status", lambda: box.git.status("/tmp/repo"), lambda i: i.current_branch == "main")
    name = "sdk-" + uuid.uuid4().hex[:12]
    for mark in ("earlier", "later"):
        await w(box.files.write("/root/mark", mark))
        await check(f"create_snapshot with a name, the {mark}", lambda: box.create_snapshot(name=name), lambda i: name in i.snapshot_id)
    made = await check("Sandbox.create by that name", lambda: Sandbox.create(name))
    if made:
        await check("is of the later", lambda: made.files.read("/root/mark"), "later")
        await w(made.kill())
    await check("Sandbox.delete_snapshot by that name", lambda: Sandbox.delete_snapshot(name), True)
    await check("Sandbox.pause", lambda: Sandbox.pause(box.sandbox_id))
    answer = ask("/u", host=box.get_host(3000))
    ok(answer[0] == 502, "a port of a paused one", answer)
    await check("Sandbox.kill of a paused one", lambda: Sandbox.kill(box.sandbox_id), True)


async def states(s):
    mark = lambda box: box.files.read("/dev/shm/mark")
    await w(s.files.write("/dev/shm/mark", "kept"))
    snapshot = await check("create_snapshot", s.create_snapshot, lambda i: bool(i.snapshot_id))
    if snapshot:
        listed = Sandbox.list_snapshots(sandbox_id=s.sandbox_id)
        await check("Sandbox.list_snapshots", listed.next_items, lambda found: snapshot.snapshot_id in [i.snapshot_id for i in found])
        made = await check("Sandbox.create of a snapshot", lambda: Sandbox.create(snapshot.snapshot_id))
        if made:
            await check("has what it had", lambda: mark(made), "kept")
            await w(made.kill())
        await check("Sandbox.delete_snapshot", lambda: Sandbox.delete_snapshot(snapshot.snapshot_id), True)
        await check("Sandbox.delete_snapshot of none", lambda: Sandbox.delete_snapshot(snapshot.snapshot_id), False)
    forks = await check("fork", s.fork, lambda found: len(found) == 1)
    if forks:
        await check("a fork has what it had", lambda: mark(forks[0]), "kept")
        await w(forks[0].kill())
    watcher = await check("files.watch_dir before a pause", lambda: s.files.watch_dir("/tmp")) if kind == "sync" else None
    await check("pause", s.pause)
    await check("is_running of a paused one", s.is_running, False)
    await check("connect", s.connect, lambda again: again.sandbox_id == s.sandbox_id)
    await check("it is as it was", lambda: mark(s), "kept")
    if watcher:
        got, deadline = [], time.monotonic() + 60
        await w(s.files.write("/tmp/after", "x"))
        while not any(e.name == "after" for e in got) and time.monotonic() < deadline:
            got.extend(watcher.get_new_events())
            await asyncio.sleep(0.1)
        ok(any(e.name == "after" for e in got), "a directory watched before a pause is watched after it", got)
        await check("the stop of a watch that was paused", watcher.stop)
    auto = await check("create, to sleep and be woken", lambda: Sandbox.create("base", timeout=600, lifecycle={"on_timeout": "pause", "auto_resume": True}))
    if auto:
        await check("set_timeout to nothing", lambda: auto.set_timeout(0))
        await check("it sleeps", auto.get_info, lambda i: i.state == e2b.SandboxState.PAUSED)
        await check("and is woken", lambda: auto.commands.run("echo awake"), lambda r: r.stdout == "awake\n")
        await check("kill of it", auto.kill, True)
    await check("kill", s.kill, True)
    await check("kill of none", lambda: Sandbox.kill(s.sandbox_id), False)
    await check("is_running of none", s.is_running, False)
    await raises("a command in none", e2b.TimeoutException, lambda: s.commands.run("true"))


async def main():
    s = await lifecycle()
    if s is not None:
        for part in (commands, users, watched, terminals, files, addresses, states):
            await part(s)
    print(f"1..{n}")
    sys.exit(bad > 0)


asyncio.run(main())
