"""Starts Python programs from a process that has imported LibTorch already.

To import torch takes ten times as long as a training step of these tests, and every check starts a dozen
programs. Here they are forked from one process that imported it: each still is a process of its own, with
its own arguments, environment, folder and files. Nothing of ours is imported before the fork.

    python fork_server.py FILE [MODULE]...   serves the socket of that number until its standard input ends;
                                             imports these modules as well
    python -IS fork_client.py SOCKET ...     as `python ...`: SCRIPT or -m MODULE, and arguments
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
import types

# What the examples and what they train with import, directly or not.
PRELOADED = (
    "torch", "torch.distributed.run", "torch.distributed.tensor", "torch.distributed.fsdp",
    "torch.distributed.pipelining", "torch._inductor.compile_fx",
)  # fmt: skip


def run(words: list[str]) -> None:
    """As the interpreter runs its own arguments."""
    while words[0] == "-u":
        words = words[1:]
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = words
    sys.path.insert(0, os.path.dirname(os.path.realpath(words[0])))
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__ = words[0]
    with open(words[0], encoding="utf-8") as file:
        exec(compile(file.read(), words[0], "exec"), main.__dict__)


def receive(connection: socket.socket) -> tuple[dict, list[int]]:
    head, files, _, _ = socket.recv_fds(connection, 4, 3)
    [size] = struct.unpack("i", head)
    text = b""
    while len(text) < size:
        text += connection.recv(size - len(text))
    return json.loads(text), files


def become(request: dict, files: list[int]) -> None:
    """The forked process takes over what its client has."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(":") if path and path not in sys.path]
    sys.path[:0] = paths


class Server:
    def __init__(self, listener: socket.socket):
        self._running: dict[int, socket.socket] = {}  # by process id: who is notified of its end
        self._listener = listener
        self._ended, wake = os.pipe()
        for end in (self._ended, wake):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._start)
        self._selector.register(self._ended, selectors.EVENT_READ, self._reap)
        self._selector.register(0, selectors.EVENT_READ, self._stop)

    def serve(self) -> list[str]:
        """Returns in forked processes only: what they are to run."""
        while True:
            for key, _ in self._selector.select():
                words = key.data(key.fileobj)
                if words:
                    return words

    def _start(self, _) -> list[str] | None:
        connection, _ = self._listener.accept()
        request, files = receive(connection)
        process = os.fork()
        if process == 0:
            for other in (self._listener, connection, *self._running.values()):
                other.close()
            become(request, files)
            return request["words"]
        for file in files:
            os.close(file)
        self._running[process] = connection
        self._selector.register(connection, selectors.EVENT_READ, lambda _: self._kill(process))
        return None

    def _reap(self, _) -> None:
        os.read(self._ended, 4096)
        for process in list(self._running):
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                with self._running.pop(process) as connection:
                    if connection in self._selector.get_map():
                        self._selector.unregister(connection)
                        connection.sendall(struct.pack("i", os.waitstatus_to_exitcode(status)))

    def _kill(self, process: int) -> None:
        """Its client is gone: whoever started that one killed it."""
        self._selector.unregister(self._running[process])
        os.kill(process, signal.SIGKILL)

    def _stop(self, _) -> None:
        for process in self._running:
            os.kill(process, signal.SIGKILL)
        os._exit(0)


if __name__ == "__main__":
    del sys.path[0]  # our own folder is none of the programs'
    for module in (*PRELOADED, *sys.argv[2:]):
        importlib.import_module(module)
    run(Server(socket.socket(fileno=int(sys.argv[1]))).serve())
