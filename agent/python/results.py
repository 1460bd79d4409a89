# SPDX-License-Identifier: Apache-2.0
"""Results of cells on their way to the agent: one JSON object a line, {"type": "result" or
"display", "data": {mime: text}}.

What cannot be in such a text is replaced in it by U+FFFD (NUL, lone surrogates), so that no
value is lost for one odd character. A display that has an id is held back until its cell ends;
an update takes the place of what is held, so a progress bar is one result, its last state.
"""

import base64
import json
import math
import os
import re
import signal
import threading

DISPLAY_MAX = 8 << 20  # bytes of one line
CELL_MAX = 32 << 20  # bytes of the lines of one cell
HELD_MAX = 1000  # displays with an id, of one cell

UNFIT = re.compile("[\0\ud800-\udfff]")


def fit(text):
    return UNFIT.sub("\ufffd", text)


def plain(value):
    """@value as JSON can tell it everywhere."""
    if isinstance(value, str):
        return fit(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {fit(str(key)): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(one) for one in value]
    if hasattr(value, "item") and not getattr(value, "shape", None):  # a number of NumPy's
        one = value.item()
        if one is not value and isinstance(one, (str, bool, int, float, type(None))):
            return plain(one)
    if hasattr(value, "isoformat"):
        return fit(str(value.isoformat()))
    return fit(repr(value))


def as_text(value):
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, str):
        return fit(value)
    return json.dumps(plain(value))


def encoded(kind, bundle):
    """The line of a bundle, and its text/plain."""
    data = {fit(str(mime)): as_text(value) for mime, value in bundle.items()}
    line = json.dumps({"type": kind, "data": data}).encode("ascii") + b"\n"
    return line, data.get("text/plain", "")


class Results:
    def __init__(self, fd):
        self.fd = fd
        self.lock = threading.RLock()
        self.begin()

    def begin(self):
        """A cell begins."""
        self.bytes = 0
        self.held = []  # [id, bundle]

    def emit(self, kind, bundle):
        line, text = encoded(kind, bundle)
        if len(line) > DISPLAY_MAX or self.bytes + len(line) > CELL_MAX:
            note = "%s\n… a result of %d bytes, not passed on: too long" % (text[:1000], len(line))
            line, _text = encoded(kind, {"text/plain": note})
            if self.bytes + len(line) > CELL_MAX + (1 << 20):
                return
        # a line is written whole, whichever thread and interrupt comes between
        with self.lock:
            before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            try:
                self.bytes += len(line)
                view = memoryview(line)
                while view:
                    view = view[os.write(self.fd, view) :]
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def display(self, bundle, display_id=None, update=False):
        if display_id is None and not update:
            self.emit("display", bundle)
        elif not update:
            if len(self.held) >= HELD_MAX:
                self.emit("display", self.held.pop(0)[1])
            self.held.append([display_id, dict(bundle)])
        else:  # of an earlier cell's: there is no way back to it
            for one in self.held:
                if one[0] == display_id:
                    one[1] = dict(bundle)

    def end(self):
        """A cell ends: what was held back goes out."""
        held, self.held = self.held, []
        for _id, bundle in held:
            self.emit("display", bundle)
