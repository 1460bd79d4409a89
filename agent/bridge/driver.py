# SPDX-License-Identifier: Apache-2.0
"""Between the agent and an interpreter that cannot speak its messages (agent/python/messages.py has them): Bash, R and Java.

The interpreter runs a loop of ours (descriptor 6) as this program's child. Its output goes to the agent by the descriptors that
both have; cells come to it by a pipe (7), how each ended by another (8), in fields: for Bash each ends with NUL, for the others
with its length (u32) before it.

    to the loop:    number of variables, each variable ("K=V"), code
    from the loop:  "ok" or a class, text, traceback

An interpreter that ends is an error of its cell; the next cell has a fresh one.
"""

import fcntl
import os
import select
import signal
import socket
import struct
import sys

LOOP = 6
AGAIN_S = 0.25  # an interrupt that its loop has missed is sent anew

LOOP_PATH = "/proc/self/fd/%d" % LOOP
COMMANDS = {
    "bash": ["bash", "--norc", "--noprofile", LOOP_PATH],
    "r": ["Rscript", "--vanilla", LOOP_PATH],
    "java": ["java", "-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "--add-opens",
             "java.base/java.util=ALL-UNNAMED", "--add-modules", "jdk.jshell,jdk.unsupported", "--source", "17", LOOP_PATH],
}

# what makes the generator of a clone another than its siblings'
SEEDS = {"bash": b"RANDOM=%d", "r": b"set.seed(%d)"}

os.close(DRIVER)  # this text, which has been read


def ignore_interrupt(_signal, _frame):
    """It is the interpreter's."""


def high_pipe():
    """A pipe whose ends are in nobody's way."""
    ends = os.pipe()
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in ends]
    for fd in ends:
        os.close(fd)
    return high


class Interpreter:
    def __init__(self, language):
        self.language = language
        self.start()

    def start(self):
        to_read, self.to = high_pipe()
        self.back, back_write = high_pipe()
        command = COMMANDS[self.language]
        self.pid = os.posix_spawnp(
            command[0],
            command,
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, to_read, 7),
                (os.POSIX_SPAWN_DUP2, back_write, 8),
            ],
        )
        os.close(to_read)
        os.close(back_write)
        self.read = b""
        self.variables = None
        if self.fields(1) is None:  # that it is ready
            raise OSError("it ended at once")

    def encoded(self, fields):
        if self.language == "bash":
            return b"".join(field.replace(b"\0", b"") + b"\0" for field in fields)
        return b"".join(struct.pack("<I", len(field)) + field for field in fields)

    def taken(self):
        """The next field, where it is whole."""
        if self.language == "bash":
            field, end, rest = self.read.partition(b"\0")
            if not end:
                return None
        else:
            if len(self.read) < 4:
                return None
            (length,) = struct.unpack_from("<I", self.read)
            if len(self.read) < 4 + length:
                return None
            field, rest = self.read[4 : 4 + length], self.read[4 + length :]
        self.read = rest
        return field

    def fields(self, count):
        """So many fields; None where the interpreter has ended instead."""
        found, asked = [], False
        while len(found) < count:
            field = self.taken()
            if field is not None:
                found.append(field)
                continue
            ready, _, _ = select.select([self.back, control], [], [], AGAIN_S if asked else None)
            if self.back in ready:
                part = os.read(self.back, 65536)
                if not part:
                    return None
                self.read += part
            elif interrupt_waits():
                if asked:
                    os.killpg(0, signal.SIGINT)
                asked = True
                select.select([self.back], [], [], AGAIN_S)
            elif control in ready and not control.recv(1, socket.MSG_PEEK):
                os._exit(0)
        return found

    def run(self, code, sandbox, own):
        """Class, text and traceback of what failed, or None."""
        if sandbox and sandbox != self.variables:
            self.variables = sandbox
            os.environb.update(pair.split(b"=", 1) for pair in sandbox if b"=" in pair)
            # a cell of ours, whose variables stay: the name of the list is empty
            self.write([b"-%d" % len(sandbox), *sandbox, b""])
            if self.fields(3) is None:
                return self.ended()
        self.write([b"%d" % len(own), *own, code])
        end = self.fields(3)
        if end is None:
            return self.ended()
        return None if end[0] == b"ok" else end

    def write(self, fields):
        data = memoryview(self.encoded(fields))
        try:
            while data:
                data = data[os.write(self.to, data) :]
        except BrokenPipeError:
            pass  # it has ended: the answer says so

    def ended(self):
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.to)
        os.close(self.back)
        self.start()
        how = "was killed by signal %d" % -status if status < 0 else "ended with exit code %d" % status
        text = "the interpreter %s; the next cell has a fresh one" % how
        return [b"InterpreterEnded", text.encode(), b""]


def main():
    signal.signal(signal.SIGINT, ignore_interrupt)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    language = sys.argv[1]
    try:
        interpreter = Interpreter(language)
    except OSError as error:
        send("F", ("%s cannot be started: %s" % (COMMANDS[language][0], error)).encode())
        os._exit(1)
    count = 0
    send("H")
    while True:
        kind, body = receive()
        if kind == "I":
            continue
        if kind != "C":
            if kind == "P":
                count = 0
            if kind == "S" and language in SEEDS:
                seed = int.from_bytes(os.urandom(4), "little") >> 1
                interpreter.run(SEEDS[language] % seed, [], [])
            send(kind)
            continue
        count += 1
        code, sandbox, own = unpacked(body)
        if interrupt_waits():
            raised = [b"KeyboardInterrupt", b"", b"KeyboardInterrupt"]
        else:
            raised = interpreter.run(code, sandbox, own)
        done(count, raised and [text.decode("utf-8", "replace") for text in raised])


main()
