# SPDX-License-Identifier: Apache-2.0
"""cells.py SCRATCH: cells of code through a pool's API; docs/interpreter.md says what is right."""
import sys
from pool_lib import *

tap = Tap()
d = Daemon(sys.argv[1], "[template code-interpreter]\nspares = 1\nstandbys = 0\n")


class Cell:
    """What a cell told."""

    def __init__(self, sid, code, **more):
        status, _, data = d.api.raw("POST", f"/sandboxes/{sid}/execute", dict({"code": code}, **more), timeout=300)
        self.status, self.body = status, data.decode()
        lines = [json.loads(line) for line in self.body.splitlines() if line] if status < 300 else []
        self.out, self.err = ("".join(e["text"] for e in lines if e["type"] == kind) for kind in ("stdout", "stderr"))
        self.results = [e for e in lines if e["type"] == "result"]
        self.texts = [e.get("text") for e in self.results]
        errors = [e for e in lines if e["type"] == "error"]
        self.error = errors[-1]["name"] if errors else None
        self.value = errors[-1]["value"] if errors else None
        self.traceback = errors[-1]["traceback"] if errors else ""
        self.count = next((e["execution_count"] for e in lines if e["type"] == "number_of_executions"), None)


def create(**more):
    return d.api.create("code-interpreter", timeout=1800, **more)


def failures(c):
    tap.equal(Cell(c, "1").count, 1, "the first cell that a user runs has number 1")
    d.api.exec(c, "printf 'print(1)\\n1/0\\nprint(2)\\n' >/tmp/s.py")
    cell = Cell(c, "%run /tmp/s.py")
    tap.equal((cell.out, cell.error), ("1\n", "ZeroDivisionError"), "a script that fails under %run fails its cell")
    tap.ok("/tmp/s.py" in cell.traceback, "the traceback of a script under %run names the script", cell.body)
    cell = Cell(c, "class V:\n    def __repr__(self): raise ValueError('no text for me')\nV()")
    tap.equal((cell.error, cell.value, cell.texts), ("ValueError", "no text for me", []), "a value that cannot be shown fails its cell")
    tap.equal(Cell(c, "V(); 5").texts, ["5"], "one that is not shown fails nothing")
    cell = Cell(c, "class W:\n    def __repr__(self): return 'plain'\n    def _repr_html_(self): raise ValueError('no html')\nW()")
    tap.equal((cell.error, cell.value, cell.texts), ("ValueError", "no html", ["plain"]), "a failing representation beside a text is told, and the text")
    cell = Cell(c, "import matplotlib.pyplot as plt\nplt.title('$\\\\nosuch{$'); plt.plot([1])")
    tap.ok(cell.error == "ValueError", "a figure that cannot be drawn fails its cell", cell.body[-2000:])
    Cell(c, "plt.close('all')")
    cell = Cell(c, "import os, sys\npid = os.fork()\nif pid == 0: sys.exit(3)\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))")
    tap.equal(cell.out, "3\n", "a forked child's exit status is its own")


def characters(c):
    cell = Cell(c, "os.makedirs(b'/tmp/o', exist_ok=True); open(b'/tmp/o/caf\\xe9.txt', 'w').close()\n"
                   "pd.DataFrame({'name': os.listdir('/tmp/o')})")
    tap.ok(len(cell.results) == 1 and "caf" in cell.results[0]["text"] and "caf" in cell.results[0]["html"],
           "a table with a name that is no text is a result", cell.body)
    cell = Cell(c, "pd.DataFrame({'raw': ['a\\x00b', 'ok']})")
    tap.ok(len(cell.results) == 1 and "ok" in cell.results[0]["html"], "a table with a NUL is a result", cell.body)
    cell = Cell(c, "from IPython.display import HTML; HTML('<b>\\ud800</b>')")
    tap.equal([r.get("html") for r in cell.results], ["<b>\ufffd</b>"], "a lone surrogate is replaced")
    cell = Cell(c, "print('\\ud800 a\\x00b')")
    tap.equal(cell.out, "\\ud800 a\0b\n", "what is printed is told as text, with its NUL")
    said = subprocess.run([PARBAKE, "code", c, "--code", "print('a\\x00b'); 'c'"], env=d.env, capture_output=True)
    tap.equal((said.returncode, said.stdout), (0, b"a\0b\nc\n"), "the command passes a NUL on", said.stderr)


def loop(c):
    cell = Cell(c, "import asyncio\nasync def job():\n    await asyncio.sleep(0.2); return 7\nt = asyncio.create_task(job())")
    tap.equal(cell.error, None, "create_task() works in a plain cell")
    tap.equal(Cell(c, "await t").texts, ["7"], "a later cell awaits the task")
    tap.equal(Cell(c, "asyncio.run(job())").texts, ["7"], "asyncio.run() works")
    tick = "async def tick():\n    for i in range(50): print('tick', i); await asyncio.sleep(0.1)\nawait tick()"
    cell = Cell(c, tick, timeout_ms=400)
    tap.equal(cell.error, "TimeoutError", "an await is timed out")
    cell = Cell(c, "await asyncio.sleep(1); print('second')")
    tap.equal(cell.out, "second\n", "an await that timed out does not print into the next cell")
    child = subprocess.Popen([PARBAKE, "code", c, "--code", tick], env=d.env, stdout=subprocess.PIPE)
    child.stdout.read(4)
    child.terminate()
    child.communicate()
    cell = Cell(c, "await asyncio.sleep(1); print('third')")
    tap.equal(cell.out, "third\n", "an await whose client went away does not print into the next cell")


def displays(c):
    cell = Cell(c, "h = display('0 %', display_id=True)\nfor i in range(200): h.update(f'{i // 2} %')")
    tap.equal(cell.texts, ["99 %"], "200 updates of a display are one result, the last")


def rich(c):
    """What a client can draw anew, beside the picture."""
    cell = Cell(c, "pd.DataFrame({'name': ['a', 'b'], 'n': [1, 2.5]})")
    tap.equal(cell.results[0].get("data"), {"name": ["a", "b"], "n": [1.0, 2.5]}, "a table is data", cell.body)
    cell = Cell(c, "import matplotlib.pyplot as plt\nplt.plot([0, 1], [2, 3], label='up')\n"
                   "plt.title('T'); plt.xlabel('Time (s)'); plt.show()")
    chart = cell.results[0].get("chart") or {}
    tap.equal([chart.get(k) for k in ("type", "title", "x_label", "x_unit", "x_scale", "elements")],
              ["line", "T", "Time (s)", "s", "linear", [{"label": "up", "points": [[0.0, 2.0], [1.0, 3.0]]}]], "lines are a chart", cell.body[-500:])
    tap.ok(cell.results[0].get("png"), "beside their picture")
    for code, kind, elements in (
        ("plt.bar(['A', 'B'], [1, 2], label='g')", "bar",
         [{"label": "A", "value": 1.0, "group": "g"}, {"label": "B", "value": 2.0, "group": "g"}]),
        ("plt.scatter([1], [2], label='s')", "scatter", [{"label": "s", "points": [[1.0, 2.0]]}]),
        ("plt.pie([90, 10], labels=['x', 'y'])", "pie",
         [{"label": "x", "angle": 324.0, "radius": 1.0}, {"label": "y", "angle": 36.0, "radius": 1.0}]),
        ("plt.boxplot([[1, 2, 3, 4, 5, 99]], labels=['b'])", "box_and_whisker",
         [{"label": "b", "min": 1.0, "first_quartile": 2.25, "median": 3.5, "third_quartile": 4.75, "max": 5.0, "outliers": [99.0]}]),
        ("plt.imshow([[1]])", "unknown", []),
    ):
        chart = Cell(c, code + "; plt.show()").results[-1].get("chart") or {}
        near = [{k: round(v, 3) if isinstance(v, float) else v for k, v in one.items()} for one in chart.get("elements", [])]
        tap.equal((chart.get("type"), near), (kind, elements), f"a chart of the type {kind}")
    chart = Cell(c, "f, (a, b) = plt.subplots(1, 2); a.plot([1]); b.bar([1], [2]); f.suptitle('Two'); plt.show()").results[-1].get("chart") or {}
    tap.equal((chart.get("type"), chart.get("title"), [one["type"] for one in chart.get("elements", [])]),
              ("superchart", "Two", ["line", "bar"]), "two charts are a superchart")
    cell = Cell(c, "from PIL import Image\npicture = Image.new('RGB', (2, 2)); picture.show(); picture.save('/tmp/p.png')")
    tap.equal([bool(one.get("png")) for one in cell.results], [True, True], "a picture that is shown or saved is a result")


def variables():
    e = create(envVars={"A": "sandbox"})
    tap.equal(Cell(e, "import os; print(os.environ['A'])").out, "sandbox\n", "code has the sandbox's variables")
    cell = Cell(e, "print(os.environ['A'], len(os.environ['S']))", env_vars={"A": "call", "S": "tok-7f3a\nline=2"})
    tap.equal(cell.out, "call 15\n", "a call's variables are on top")
    cell = Cell(e, "print(os.environ['A'], os.environ.get('S'), [x for x in In if 'tok-' + '7f3a' in x], 'tok-' + '7f3a' in _i)")
    tap.equal(cell.out, "sandbox None [] False\n", "a call's variables are gone behind it, from the history too")
    n = Cell(e, "1+1", env_vars={"A": "x"}).count
    cell = Cell(e, "_")
    tap.equal((cell.texts, cell.count), (["2"], n + 1), "variables of a call take no result and no number away")
    d.api.kill(e)


def time_outs():
    """The first failure of an interpreter is its most expensive: on a busy host, in sandboxes that ran nothing before."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(8)]
    try:
        for code in ("while True: pass", "import time; time.sleep(60)", "import asyncio; await asyncio.sleep(60)"):
            c = create()
            Cell(c, "x = 'kept'")
            cell = Cell(c, code, timeout_ms=300)
            tap.equal((cell.error, Cell(c, "x").texts), ("TimeoutError", ["kept"]), f"a time-out on a busy host costs no variable: {code}", cell.body)
            d.api.kill(c)
        c = create()
        Cell(c, "x = 'kept'")
        child = subprocess.Popen([PARBAKE, "code", c, "--code", "print('on', flush=True)\nwhile True: pass"], env=d.env, stdout=subprocess.PIPE)
        child.stdout.read(3)
        child.terminate()
        child.communicate()
        tap.equal(Cell(c, "x").texts, ["kept"], "a client that goes away does not cost the interpreter")
        d.api.kill(c)
    finally:
        for one in busy:
            one.kill()
            one.wait()


def contexts(c):
    path = f"/sandboxes/{c}/contexts"
    x = d.api("POST", path, {"cwd": "/tmp"})["id"]
    Cell(c, "here = 'x'", context_id=x)
    d.kill9()
    d.start()
    tap.ok(x in [one["id"] for one in d.api("GET", path)], "a context outlives the daemon")
    tap.equal(Cell(c, "here", context_id=x).texts, ["x"], "code runs in it, with its variables")
    d.api("POST", f"/sandboxes/{c}/pause")
    d.api("POST", f"/sandboxes/{c}/resume", {"timeout": 1800})
    tap.equal(Cell(c, "here", context_id=x).texts, ["x"], "a context is there after a pause")
    twin = d.api.fork(c, 1)[0]
    tap.equal(Cell(twin, "here", context_id=x).texts, ["x"], "a context is there in a fork")
    d.api.raw("DELETE", f"/sandboxes/{twin}/contexts/{x}")
    tap.equal((Cell(twin, "here", context_id=x).status, Cell(c, "here", context_id=x).status), (404, 200),
              "which removes its own and not its twin's")
    for one in d.api("GET", path):
        if one["id"] != "default":
            d.api.raw("DELETE", path + "/" + one["id"])
    tap.equal([one["id"] for one in d.api("GET", path)], ["default"], "each can be removed")
    tap.equal(Cell(c, "1", context_id="nobody").status, 404, "one that is not there is not made by code")


try:
    d.start()
    c = create()
    failures(c)
    characters(c)
    loop(c)
    displays(c)
    rich(c)
    variables()
    contexts(c)
    d.api.kill(c)
    time_outs()
finally:
    tap.equal(d.stop(), {}, "nothing is left of it")
tap.finish()
