# SPDX-License-Identifier: Apache-2.0
"""The agent's messages, as drivers in Python speak them. This text stands before that of a driver, in one program.

A message is u32 length, u8 kind, bytes; a string is u32 length, bytes:

    agent: I interrupt: the cell before it is to stop, a SIGINT comes, too; not answered
           C string code; two lists of variables ("K=V": u32 count, then strings): the sandbox's,
             and those of this cell alone
           S reseed     G collect garbage     E exercise     P prepare
    here:  H ready       F cannot start: text
           D done: u32 execution count, u8 raised, then three strings (UTF-8): class, text and
             traceback of what was raised
           S, G, E, P the same thing has been done

Messages are handled one after the other, each answered once, in order. A SIGINT that comes before its
cell has begun is told by its I.
"""

import os
import socket
import struct

CONTROL, RESULTS, DRIVER = 3, 4, 5
NAME_MAX, VALUE_MAX, TRACEBACK_MAX = 256, 16 << 10, 128 << 10

os.set_inheritable(CONTROL, False)
control = socket.socket(fileno=CONTROL)


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


def interrupt_waits():
    """Has an I come already, for the cell that runs or is about to begin?"""
    try:
        heads = control.recv(64, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    return any(heads[at : at + 1] == b"I" for at in range(4, len(heads), 5))


def unpacked(body):
    """Of a C message: the code, the sandbox's variables and the cell's, as bytes."""
    at = 0

    def number():
        nonlocal at
        at += 4
        return struct.unpack_from("<I", body, at - 4)[0]

    def string():
        nonlocal at
        length = number()
        at += length
        return body[at - length : at]

    code = string()
    return code, [string() for _ in range(number())], [string() for _ in range(number())]


def clip(text, limit):
    """UTF-8 of at most limit bytes: beginning and end, what is cut out is said."""
    data = text.encode("utf-8", "backslashreplace").replace(b"\0", b"\\x00")
    if len(data) <= limit:
        return data
    half = limit // 2 - 32
    note = "\n… %d bytes cut …\n" % (len(data) - 2 * half)
    head = data[:half].decode("utf-8", "ignore").encode()
    return head + note.encode() + data[-half:].decode("utf-8", "ignore").encode()


def done(count, raised):
    """Answer a cell: raised is class, text and traceback of what it raised, or None."""
    body = struct.pack("<IB", count, raised is not None)
    for text, limit in zip(raised or ("", "", ""), (NAME_MAX, VALUE_MAX, TRACEBACK_MAX)):
        data = clip(text, limit)
        body += struct.pack("<I", len(data)) + data
    send("D", body)
