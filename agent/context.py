# SPDX-License-Identifier: Apache-2.0
"""The warm interpreter: IPython's InteractiveShell, driven by the agent.

The agent starts one of these per context. Descriptor 0 is /dev/null, 1 and 2 are
pipes that the agent reads (so what child processes print is captured too), 3 is a
socket for messages, 4 a pipe for results: one JSON object a line, {"type": "result"
or "display", "data": {mime: text}}, 5 is this text. A message is u32 length, u8 kind, bytes:

    agent: C code        S reseed     G collect garbage     E exercise
    here:  H ready       F cannot start: text
           D done: u32 execution count, u8 raised, then three strings (u32 length,
             UTF-8): class, text and traceback of what was raised
           S, G, E the same thing has been done

Messages are handled one after the other, each answered once, in order.
"""

import os
import signal
import socket
import struct
import sys

CONTROL, RESULTS, DRIVER = 3, 4, 5
DISPLAY_MAX = 8 << 20  # bytes of one mime bundle
CELL_MAX = 32 << 20  # bytes of results of one cell
NAME_MAX, VALUE_MAX, TRACEBACK_MAX = 256, 16 << 10, 128 << 10

for _fd in (CONTROL, RESULTS):
    os.set_inheritable(_fd, False)
os.close(DRIVER)  # this text, which has been read

control = socket.socket(fileno=CONTROL)
home_pid = os.getpid()


def send(kind, body=b""):
    control.sendall(struct.pack("<IB", len(body), ord(kind)) + body)


def receive_exactly(length):
    data = bytearray()
    while len(data) < length:
        part = control.recv(length - len(data))
        if not part:
            os._exit(0)  # the agent has hung up
        data += part
    return bytes(data)


def receive():
    length, kind = struct.unpack("<IB", receive_exactly(5))
    return chr(kind), receive_exactly(length)


def clip(text, limit):
    """UTF-8 of at most limit bytes: beginning and end, what is cut out is said."""
    data = text.encode("utf-8", "backslashreplace").replace(b"\0", b"\\x00")
    if len(data) <= limit:
        return data
    half = limit // 2 - 32
    note = "\n… %d bytes cut …\n" % (len(data) - 2 * half)
    head = data[:half].decode("utf-8", "ignore").encode()
    return head + note.encode() + data[-half:].decode("utf-8", "ignore").encode()


def packed(text, limit):
    data = clip(text, limit)
    return struct.pack("<I", len(data)) + data


def ignore_interrupt(_signal, _frame):
    """Between cells. Not SIG_IGN, which programs started in the background would inherit."""


signal.signal(signal.SIGINT, ignore_interrupt)

try:
    import base64
    import builtins
    import gc
    import importlib.util
    import json
    import tempfile
    import threading

    if not os.environ.get("IPYTHONDIR"):
        # its profile directory: never on the root's disk, which may be frozen
        os.environ["IPYTHONDIR"] = tempfile.mkdtemp(
            prefix="ipython-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        )
    from IPython.core.displayhook import DisplayHook
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets import Type
    from traitlets.config import Config
except ImportError as error:
    send("F", ("cannot start IPython, which contexts need: %s" % error).encode())
    os._exit(1)


# ---- results ---------------------------------------------------------------------------

cell_bytes = 0
results_lock = threading.Lock()


def as_text(mime, value):
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, str):
        return value
    return json.dumps(value, default=repr)


def emit(kind, bundle):
    global cell_bytes
    data = {str(mime): as_text(mime, value) for mime, value in bundle.items()}
    line = json.dumps({"type": kind, "data": data}).encode("ascii") + b"\n"
    if len(line) > DISPLAY_MAX or cell_bytes + len(line) > CELL_MAX:
        plain = data.get("text/plain", "")[:1000]
        note = "%s\n… a result of %d bytes, not passed on: too long" % (plain, len(line))
        line = json.dumps({"type": kind, "data": {"text/plain": note}}).encode() + b"\n"
        if cell_bytes + len(line) > CELL_MAX + (1 << 20):
            return
    # a line is written whole, whichever thread and interrupt comes between
    with results_lock:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            cell_bytes += len(line)
            view = memoryview(line)
            while view:
                view = view[os.write(RESULTS, view) :]
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Hook(DisplayHook):
    def write_output_prompt(self):
        pass

    def write_format_data(self, format_dict, md_dict=None):
        if os.getpid() == home_pid:
            emit("result", format_dict)


class Publisher(DisplayPublisher):
    def publish(self, data, metadata=None, *args, **kwargs):
        if os.getpid() == home_pid:
            emit("display", data)

    def clear_output(self, wait=False):
        pass


class Shell(InteractiveShell):
    displayhook_class = Type(Hook)
    display_pub_class = Type(Publisher)
    raised = None  # class, text and traceback of the last cell's exception

    def _showtraceback(self, etype, evalue, stb):
        name = getattr(etype, "__name__", str(etype))
        try:
            value = str(evalue)
        except Exception:  # its __str__ is the user's
            value = "<no text>"
        lines = stb if isinstance(stb, list) else [str(stb)]
        self.raised = (name, value, "\n".join(lines))

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
    builtins.input = no_input
    # Whoever imports matplotlib.pyplot gets figures as results, as in a notebook; it costs
    # nothing until then.
    if importlib.util.find_spec("matplotlib_inline"):
        os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    # What `-I` kept away from our own imports is there for the user's.
    sys.path.insert(0, "")
    sys.path[1:1] = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    return shell


def run(shell, code):
    """Run a cell: execution count and what it raised, or None."""
    global cell_bytes
    cell_bytes = 0
    shell.raised = None
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            result = shell.run_cell(code, store_history=True)
        finally:
            signal.signal(signal.SIGINT, ignore_interrupt)
        error = result.error_before_exec or result.error_in_exec
        if error is not None and shell.raised is None:
            shell.raised = (type(error).__name__, str(error), "")
        if error is None:
            shell.raised = None
    except KeyboardInterrupt:  # it came just before or after the cell itself
        shell.raised = ("KeyboardInterrupt", "", "KeyboardInterrupt")
    if os.getpid() != home_pid:
        os._exit(0)  # a child the cell forked must not answer in our place
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # the cell may have put anything in their place
            pass
    return max(shell.execution_count - 1, 0), shell.raised


def undo(shell):
    """What a cell changes of the shell; the value puts it back. Hooks sleep meanwhile."""
    history, events = shell.history_manager, shell.events
    names = ["_i", "_ii", "_iii", "_i%d" % shell.execution_count]
    space = {name: shell.user_ns[name] for name in names if name in shell.user_ns}
    lists = [history.input_hist_parsed, history.input_hist_raw, history.db_input_cache]
    lengths = [len(one) for one in lists]
    texts = ["_i", "_ii", "_iii", "_i00"]
    fields = [(history, name, getattr(history, name)) for name in texts]
    fields += [
        (shell, name, getattr(shell, name))
        for name in ("execution_count", "last_execution_succeeded", "last_execution_result")
    ]
    fields.append((events, "callbacks", events.callbacks))

    def put_back():
        for owner, name, value in fields:
            setattr(owner, name, value)
        for one, length in zip(lists, lengths):
            del one[length:]
        for name in names:
            shell.user_ns.pop(name, None)
        shell.user_ns.update(space)

    events.callbacks = {name: [] for name in events.callbacks}
    return put_back


def exercise(shell):
    """Go the way a cell goes, so that the next one meets it trodden, and leave no trace: nothing
    is counted, stored, shown or kept as the last result."""
    try:
        put_back = undo(shell)
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            shell.run_cell("print(end='')", store_history=True)
        finally:
            signal.signal(signal.SIGINT, ignore_interrupt)
            put_back()
        bundle, _metadata = shell.display_formatter.format(0)
        json.dumps({"data": {mime: as_text(mime, value) for mime, value in bundle.items()}})
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (Exception, KeyboardInterrupt):  # whatever the user's code has put there
        pass


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
        kind, body = receive()
        if kind == "C":
            count, raised = run(shell, body.decode("utf-8", "replace"))
            name, value, trace = raised or ("", "", "")
            send(
                "D",
                struct.pack("<IB", count, raised is not None)
                + packed(name, NAME_MAX)
                + packed(value, VALUE_MAX)
                + packed(trace, TRACEBACK_MAX),
            )
        elif kind == "S":
            reseed()
            send("S")
        elif kind == "E":
            exercise(shell)
            send("E")
        elif kind == "G":
            # What lives now is here to stay: a later collection need not look at it, which in a
            # clone would mean to write to each page that it lies in.
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            send("G")


main()
