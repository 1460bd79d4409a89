#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""listen.py SOCKET LOG: a service manager's end of sd_notify(3): appends each datagram's lines to LOG."""
import socket
import sys

sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sock.bind(sys.argv[1])
while True:
    data = sock.recv(4096)
    with open(sys.argv[2], "ab") as log:
        log.write(data + b"\n")
