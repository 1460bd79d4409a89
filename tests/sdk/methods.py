# SPDX-License-Identifier: Apache-2.0
"""Every method of E2B's Python package, sync or async, against a pool: methods.py sync|async. TAP."""
import asyncio, inspect, sys, time
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
    h = await check("another command", lambda: s.commands.run("sleep 600", background=True))
    await check("commands.kill", lambda: s.commands.kill(h.pid), True)
    await raises("its end", e2b.CommandExitException, h.wait)
    await check("commands.kill of none", lambda: s.commands.kill(999999), False)


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
    await check("files.exists", lambda: f.exists("/tmp/d/a.txt"), True)
    await check("files.exists of none", lambda: f.exists("/tmp/d/none"), False)
    await check("files.get_info", lambda: f.get_info("/tmp/d/a.txt"), lambda i: i.size == 4 and i.name == "a.txt")
    await check("files.list", lambda: f.list("/tmp/d"), lambda found: {i.name for i in found} == {"a.txt", "b", "c", "e"})
    await check("files.rename", lambda: f.rename("/tmp/d/c", "/tmp/d/moved"), lambda i: i.path == "/tmp/d/moved")
    await check("files.remove", lambda: f.remove("/tmp/d/moved"))
    await raises("files.read of none", e2b.NotFoundException, lambda: f.read("/tmp/d/none"))


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
    await check("pause", s.pause)
    await check("is_running of a paused one", s.is_running, False)
    await check("connect", s.connect, lambda again: again.sandbox_id == s.sandbox_id)
    await check("it is as it was", lambda: mark(s), "kept")
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
        for part in (commands, terminals, files, states):
            await part(s)
    print(f"1..{n}")
    sys.exit(bad > 0)


asyncio.run(main())
