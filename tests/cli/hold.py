#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hold.py HOST:PORT N KEY: N connections that say a part of a request and hang up, then N that say it and stay;
prints "held", and ends when its standard input does."""
import socket
import sys

host, port = sys.argv[1].rsplit(":", 1)
heads = [
    b"POST /sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{",
    b"POST /sandboxes HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\r\nContent-Length: 1000\r\n\r\n{" % sys.argv[3].encode(),
    b"GET /none HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    b"GET /no",
]
held = []
for i in range(2 * int(sys.argv[2])):
    conn = socket.create_connection((host, int(port)), timeout=30)
    conn.sendall(heads[i % len(heads)])
    if i < int(sys.argv[2]):
        conn.close()
    else:
        held.append(conn)
print("held", flush=True)
sys.stdin.read()
