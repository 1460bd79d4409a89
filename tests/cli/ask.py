#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ask.py [-H 'Name: value']… WHERE METHOD PATH [BODY]: one HTTP request; prints the status, a line end, the body.
WHERE is the path of a unix socket, or HOST:PORT."""
import http.client
import socket
import sys


class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.host)


args = sys.argv[1:]
headers = {}
while args[0] == "-H":
    name, value = args[1].split(": ", 1)
    headers[name] = value
    args = args[2:]
where, method, path = args[:3]
body = args[3] if len(args) > 3 else None
conn = (Unix if where.startswith("/") else http.client.HTTPConnection)(where, timeout=30)
if "Host" not in headers:
    headers["Host"] = "localhost"
conn.request(method, path, body, headers)
answer = conn.getresponse()
print(answer.status)
sys.stdout.flush()
sys.stdout.buffer.write(answer.read())
