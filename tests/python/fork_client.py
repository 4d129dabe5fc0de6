"""Runs a program as `python ...` would, through fork_server.py, and ends as it ended."""

import json
import os
import socket
import struct
import sys

request = {"words": sys.argv[2:], "folder": os.getcwd(), "environment": dict(os.environ)}
text = json.dumps(request).encode()
os.chdir(os.path.dirname(sys.argv[1]))  # the path of a socket may have 107 characters only
with socket.socket(socket.AF_UNIX) as server:
    server.connect(os.path.basename(sys.argv[1]))
    socket.send_fds(server, [struct.pack("i", len(text))], [0, 1, 2])
    server.sendall(text)
    answer = server.recv(4)
if len(answer) < 4:
    sys.exit(f"the fork server of the tests ended: see {sys.argv[1]}.log, or the output of the test that started it")
[code] = struct.unpack("i", answer)
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
