# SPDX-License-Identifier: Apache-2.0
"""The warm interpreter: IPython's InteractiveShell, driven by the agent.

The agent starts one of these per context. Descriptor 0 is /dev/null, 1 and 2 are
pipes that the agent reads (so what child processes print is captured too), 3 is a
socket for messages (messages.py), 4 a pipe for results (results.py), 5 is this text, from 6 on the
modules of MODULES.
"""

import os
import re
import signal
import struct
import sys
import types

MODULES = ("results", "loop", "rich", "chart")  # at the descriptors after DRIVER

os.set_inheritable(RESULTS, False)
home_pid = os.getpid()


def variables(pairs):
    found = (os.fsdecode(pair).partition("=") for pair in pairs)
    return {name: value for name, _equals, value in found if name}


def load(name, fd):
    """A module of ours from the descriptor that the agent gave it."""
    module = types.ModuleType("parbake_" + name)
    with open("/proc/self/fd/%d" % fd, encoding="utf-8") as file:  # from its beginning
        exec(compile(file.read(), "<parbake %s>" % name, "exec"), module.__dict__)
    os.close(fd)
    return module


signal.signal(signal.SIGINT, lambda _signal, _frame: None)  # until there are cells

try:
    import builtins
    import gc
    import importlib.util
    import linecache
    import tempfile
    import warnings

    if not os.environ.get("IPYTHONDIR"):
        # its profile directory: never on the root's disk, which may be frozen
        os.environ["IPYTHONDIR"] = tempfile.mkdtemp(
            prefix="ipython-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        )
    from IPython.core.displayhook import DisplayHook
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.formatters import BaseFormatter
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.display import display
    from traitlets import ObjectName, Type, Unicode
    from traitlets.config import Config
except ImportError as error:
    send("F", ("cannot start IPython, which contexts need: %s" % error).encode())
    os._exit(1)

os.close(DRIVER)  # this text, which has been read
results_module, loop_module, rich_module, chart_module = (
    load(name, DRIVER + 1 + i) for i, name in enumerate(MODULES)
)
results = results_module.Results(RESULTS)
cells = loop_module.Cells()


# ---- the shell -------------------------------------------------------------------------


class Hook(DisplayHook):
    def write_output_prompt(self):
        pass

    def write_format_data(self, format_dict, md_dict=None):
        if os.getpid() == home_pid:
            results.emit("result", format_dict)


class Publisher(DisplayPublisher):
    def publish(self, data, metadata=None, *args, transient=None, update=False, **kwargs):
        if os.getpid() == home_pid:
            results.display(data, (transient or {}).get("display_id"), update)

    def clear_output(self, wait=False):
        pass


def without_ours(trace):
    """Take the frames of this driver out of a traceback."""
    while trace is not None and trace.tb_next is not None:
        if trace.tb_next.tb_frame.f_code.co_filename.startswith("<parbake "):
            trace.tb_next = trace.tb_next.tb_next
        else:
            trace = trace.tb_next


class DataFormatter(BaseFormatter):
    """The values of a table, for programs."""

    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = dict


class ChartFormatter(BaseFormatter):
    """What a figure shows, for programs."""

    format_type = Unicode("e2b/chart")
    print_method = ObjectName("_repr_e2b_chart_")
    _return_type = dict


class Shell(InteractiveShell):
    displayhook_class = Type(Hook)
    display_pub_class = Type(Publisher)
    shown = []  # of the cell: (exception, class, text, traceback) of each that was shown

    def showtraceback(self, exc_tuple=None, *args, **keywords):
        """Whatever shows a traceback has failed, also where the cell went on: a script under %run, a
        representation, a figure."""
        before = len(self.shown)
        try:
            etype, value, trace = self._get_exc_info(exc_tuple)
        except ValueError:
            return super().showtraceback(exc_tuple, *args, **keywords)
        without_ours(trace)
        super().showtraceback(exc_tuple, *args, **keywords)
        if len(self.shown) == before:  # told in another way (a usage error), or not to be told
            self.show(etype, value, "")

    def _showtraceback(self, etype, evalue, stb):
        self.show(etype, evalue, "\n".join(stb) if isinstance(stb, list) else str(stb))

    def show(self, etype, value, trace):
        name = getattr(etype, "__name__", str(etype))
        if name == "CancelledError" and cells.interrupted:
            name = "KeyboardInterrupt"
        try:
            text = str(value)
        except Exception:  # its __str__ is the user's
            text = "<no text>"
        self.shown = self.shown + [(value, name, text, trace)]
        if os.getpid() != home_pid and trace and not issubclass(etype, SystemExit):
            print(trace, file=sys.stderr)  # a child the cell forked has nobody else to tell

    def ask_exit(self):
        print("exit() does not end this interpreter: stop or restart its context", file=sys.stderr)

    def system(self, cmd):
        sys.stdout.flush()
        self.system_raw(cmd)  # by its descriptors, which are captured: no terminal in between

    def enable_gui(self, gui=None):
        pass


def no_input(prompt="", *args):
    raise EOFError("input() is not possible here: code runs without a terminal")


def make_shell():
    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "NoColor"
    config.InteractiveShell.history_load_length = 0
    shell = Shell.instance(config=config)
    shell.loop_runner = cells.run_cell
    formatters = shell.display_formatter.formatters
    formatters["e2b/data"] = DataFormatter(parent=shell.display_formatter)
    formatters["e2b/chart"] = ChartFormatter(parent=shell.display_formatter)
    rich_module.install(formatters, display, chart_module.of_figure)
    # how IPython's terminal is left, which is not here
    warnings.filterwarnings("ignore", message="To exit: use 'exit'")
    builtins.input = no_input
    # Whoever imports matplotlib.pyplot gets figures as results, as in a notebook; it costs
    # nothing until then.
    if importlib.util.find_spec("matplotlib_inline"):
        os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    # What `-I` kept away from our own imports is there for the user's.
    sys.path.insert(0, "")
    sys.path[1:1] = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    return shell


def end_child(error, shown):
    """The end of a child that the cell forked: as a script's, and never in our place."""
    status = 1 if error is not None or shown else 0
    if isinstance(error, SystemExit):
        status = error.code
        if status is not None and not isinstance(status, int):
            print(status, file=sys.stderr)
            status = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    os._exit((status or 0) & 255)


def what_raised(result, shown):
    """Class, text and traceback for the agent, or None. Of several the cell's own; the others are
    printed, so that none is lost."""
    error = result and (result.error_before_exec or result.error_in_exec)
    own = [one for one in shown if one[0] is error] or shown
    if not own:
        return None if error is None else (type(error).__name__, str(error), "")
    for one in shown:
        if one is not own[-1]:
            print(one[3] or "%s: %s" % one[1:3], file=sys.stderr)
    return own[-1][1:]


class Environment:
    """The sandbox's variables are set once, and again only where they are others: what cells make of
    them stays. A cell's own are there while it runs."""

    sandbox = None

    def __init__(self, sandbox, own):
        if sandbox and sandbox != Environment.sandbox:
            Environment.sandbox = sandbox
            os.environ.update(sandbox)
        self.own = own

    def __enter__(self):
        self.before = {name: os.environ.get(name) for name in self.own}
        os.environ.update(self.own)

    def __exit__(self, *_raised):
        for name, value in self.before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def run(shell, code, environment):
    """Run a cell: execution count and what it raised, or None."""
    results.begin()
    shell.shown = []
    result, count = None, shell.execution_count
    try:
        with environment, cells:
            try:
                signal.signal(signal.SIGINT, cells.interrupt)
                if interrupt_waits():
                    signal.signal(signal.SIGINT, loop_module.ignore_interrupt)
                    raise KeyboardInterrupt
                result = shell.run_cell(code, store_history=True)
            finally:
                signal.signal(signal.SIGINT, loop_module.ignore_interrupt)
    except KeyboardInterrupt:  # it came just before or after the cell itself
        shell.show(KeyboardInterrupt, "", "KeyboardInterrupt")
    if os.getpid() != home_pid:
        end_child(result and (result.error_before_exec or result.error_in_exec), shell.shown)
    if len(shell.history_manager.input_hist_parsed) <= count:  # blank, or it did not begin
        shell.history_manager.store_inputs(count, code, code)
    shell.execution_count = count + 1
    results.end()
    raised = what_raised(result, shell.shown)
    shell.shown = []
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # the cell may have put anything in their place
            pass
    return count, raised


# ---- ways trodden before they are needed -----------------------------------------------


def undo(shell):
    """What a cell changes of the shell; the value puts it back. Hooks sleep meanwhile."""
    history, events = shell.history_manager, shell.events
    names = ["_i", "_ii", "_iii", "_i%d" % shell.execution_count]
    space = {name: shell.user_ns[name] for name in names if name in shell.user_ns}
    lists = [history.input_hist_parsed, history.input_hist_raw, history.db_input_cache]
    lengths = [len(one) for one in lists]
    texts = ["_i", "_ii", "_iii", "_i00"]
    last = ("last_type", "last_value", "last_traceback", "last_exc")
    fields = [(history, name, getattr(history, name)) for name in texts]
    fields += [
        (shell, name, getattr(shell, name))
        for name in ("execution_count", "last_execution_succeeded", "last_execution_result")
    ]
    fields += [(sys, name, getattr(sys, name)) for name in last if hasattr(sys, name)]
    gone = [name for name in last if not hasattr(sys, name)]
    fields.append((events, "callbacks", events.callbacks))
    lines = set(linecache.cache)

    def put_back():
        for owner, name, value in fields:
            setattr(owner, name, value)
        for name in gone:
            if hasattr(sys, name):
                delattr(sys, name)
        for one, length in zip(lists, lengths):
            del one[length:]
        for name in names:
            shell.user_ns.pop(name, None)
        shell.user_ns.update(space)
        for name in set(linecache.cache) - lines:
            if name.startswith("<"):
                del linecache.cache[name]

    events.callbacks = {name: [] for name in events.callbacks}
    return put_back


def exercise(shell, codes=("print(end='')",)):
    """Go the way a cell goes, so that the next one meets it trodden, and leave no trace: nothing
    is counted, stored, shown or kept as the last result."""
    try:
        put_back = undo(shell)
        try:
            with cells:
                signal.signal(signal.SIGINT, cells.interrupt)
                for code in codes:
                    shell.run_cell(code, store_history=True)
        finally:
            signal.signal(signal.SIGINT, loop_module.ignore_interrupt)
            shell.shown = []
            put_back()
        bundle, _metadata = shell.display_formatter.format(0)
        results_module.encoded("result", bundle)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (Exception, KeyboardInterrupt):  # whatever the user's code has put there
        pass


RARE_WAYS = (
    # the first traceback loads what renders it, which takes a second
    "(lambda: 1 / 0)()",
    "def :",
    "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)",
    "import asyncio\nawait asyncio.sleep(0)",
    "import asyncio, os, signal\n"
    "asyncio.get_running_loop().call_later(0.001, os.kill, os.getpid(), signal.SIGINT)\n"
    "await asyncio.sleep(9)",
)


def prepare(shell):
    """A template is about to be captured: go the rarer ways as well, and begin to count anew. What
    ran so far was the template's; its variables stay."""
    space = {name: shell.user_ns[name] for name in ("asyncio", "os", "signal", "time")
             if name in shell.user_ns}
    exercise(shell, RARE_WAYS)
    for name in ("asyncio", "os", "signal", "time"):
        shell.user_ns.pop(name, None)
    shell.user_ns.update(space)
    for name in [one for one in shell.user_ns if re.fullmatch("_i?[0-9]+|_i{1,3}|_{1,3}", one)]:
        del shell.user_ns[name]
    history = shell.history_manager
    history.input_hist_parsed[:] = history.input_hist_raw[:] = [""]
    history.db_input_cache.clear()
    history._i00 = history._i = history._ii = history._iii = ""
    shell.user_ns["_oh"].clear()
    shown = shell.displayhook
    shown._ = shown.__ = shown.___ = ""
    shell.user_ns.update({"_": "", "__": "", "___": "", "_i": "", "_ii": "", "_iii": ""})
    shell.execution_count = 1


# ---- a clone's generators ----------------------------------------------------------------


def reseed():
    """Make anew whatever a clone would share with its siblings. Generators that the user's
    code holds itself (random.Random(), numpy.random.default_rng()) cannot be found."""
    modules = sys.modules
    if "random" in modules:
        # a number, not bytes: those would be hashed first
        modules["random"].seed(int.from_bytes(os.urandom(64), "little"))
    if "numpy.random" in modules:
        modules["numpy.random"].seed(struct.unpack("<16I", os.urandom(64)))
    if "ssl" in modules or "_ssl" in modules:
        modules.get("_ssl", modules.get("ssl")).RAND_add(os.urandom(64), 64.0)
    if "uuid" in modules:
        modules["uuid"]._node = None
        modules["uuid"]._last_timestamp = None
    if "tempfile" in modules:
        modules["tempfile"]._name_sequence = None
    process = modules.get("multiprocessing.process")
    if process and not process.active_children():
        process.current_process().authkey = os.urandom(32)


def main():
    sys.stdin = open(0, closefd=False)
    sys.stdout = open(
        1, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False
    )
    sys.stderr = open(
        2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False
    )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    shell = make_shell()
    gc.collect()
    send("H")
    while True:
        cells.wait_readable(CONTROL)
        kind, body = receive()
        if kind == "I":
            continue  # its cell has ended
        if kind == "C":
            code, *lists = unpacked(body)
            done(*run(shell, code.decode("utf-8", "replace"), Environment(*map(variables, lists))))
            continue
        if kind == "S":
            reseed()
        elif kind == "E":
            exercise(shell)
        elif kind == "P":
            prepare(shell)
        elif kind == "G":
            # What lives now is here to stay: a later collection need not look at it, which in a
            # clone would mean to write to each page that it lies in.
            gc.unfreeze()
            gc.collect()
            gc.freeze()
        send(kind)


main()
