"""The server that programs of these tests are forked from survives clients that are killed.

Symptom: in one of several runs of all tests "the fork server of the tests ended" while a program ran, and
connections of all later ones were refused. `ttrace` ends a program whose trace is complete, so that a client
is often killed in the moment in which its program ends.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import HERE, fork_server

WAITS = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The socket of one of our own, which alone may end. It lies in the current folder (see `connect`)."""
    monkeypatch.chdir(tmp_path)
    path = str(tmp_path / "socket")
    with fork_server(path) as process:
        yield path
        process.stdin.close()


def connect(server: str) -> socket.socket:
    """By the name alone, because the path of a socket may have 107 characters only."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.path.basename(server))
    return connection


class Request:
    """A client that sends its request in two parts; between them the server waits for the second."""

    def __init__(self, server: str, script: Path):
        request = {"words": [str(script)], "folder": str(script.parent), "environment": dict(os.environ)}
        self._text = json.dumps(request).encode()
        self._socket = connect(server)
        with open(os.devnull, "r+b") as nothing:
            files = [nothing.fileno()] * 3
            socket.send_fds(self._socket, [struct.pack("i", len(self._text))], files)

    def complete(self) -> int:
        """The exit status of the program."""
        self._socket.sendall(self._text)
        answer = self._socket.recv(4)
        assert len(answer) == 4, "the server ended"
        return struct.unpack("i", answer)[0]

    def give_up(self) -> None:
        self._socket.close()


def script(folder: Path, text: str) -> Path:
    path = folder / f"{len(list(folder.iterdir()))}.py"
    path.write_text(text)
    return path


def client(server: str, program: Path) -> subprocess.Popen:
    words = [sys.executable, "-IS", HERE / "fork_client.py", server, program]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_a_client_may_be_killed_while_its_program_ends(server, tmp_path):
    with client(server, script(tmp_path, WAITS)) as killed:
        program = os.pidfd_open(int(killed.stdout.readline()))
        busy = Request(server, script(tmp_path, "import sys; sys.exit(3)"))
        killed.stdin.close()
        assert select.select([program], [], [], 60)[0]  # it has ended, which the server has not seen yet
        killed.kill()
        killed.wait()
    os.close(program)
    assert busy.complete() == 3
    assert Request(server, script(tmp_path, "import sys; sys.exit(4)")).complete() == 4


def test_a_client_may_be_killed_before_its_request_is_complete(server, tmp_path):
    Request(server, script(tmp_path, "")).give_up()
    connect(server).close()
    assert Request(server, script(tmp_path, "import sys; sys.exit(5)")).complete() == 5


def test_a_program_is_killed_with_its_client(server, tmp_path):
    with client(server, script(tmp_path, WAITS)) as killed:
        program = os.pidfd_open(int(killed.stdout.readline()))
        killed.kill()
        assert select.select([program], [], [], 60)[0]
    os.close(program)


def test_serves_only_once_it_listens_whatever_its_modules_print(tmp_path, monkeypatch):
    """Programs of DeepSpeed, which prints when it is imported, found no socket."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "talkative.py").write_text("print('hello', flush=True)")
    with fork_server(str(tmp_path / "socket"), ("talkative",)) as process:
        connect("socket").close()
        process.stdin.close()
