"""Starts Python programs from a process that has imported LibTorch already.

To import torch takes ten times as long as a training step of these tests, and every check starts a dozen
programs. Here they are forked from one process that imported it: each still is a process of its own, with
its own arguments, environment, folder and files. Nothing of ours is imported before the fork.

    python fork_server.py SOCKET [MODULE]...  imports these modules as well, prints a line when it serves SOCKET,
                                              and ends when its standard input ends
    python fork_server.py start SOCKET        for several test files: returns once a server in the background serves SOCKET
    python fork_server.py stop SOCKET         ends that server, which ends after six idle hours anyway
    python -IS fork_client.py SOCKET ...      as `python ...`: SCRIPT or -m MODULE, and arguments
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import types
from pathlib import Path

# What the examples and what they train with import, directly or not.
PRELOADED = (
    "torch", "torch.distributed.run", "torch.distributed.tensor", "torch.distributed.fsdp",
    "torch.distributed.pipelining", "torch._inductor.compile_fx",
)  # fmt: skip
# What Inductor has compiled once is not compiled again, whichever test or process asks for it. Torch reads these when it is imported.
ENVIRONMENT = {
    "TORCHINDUCTOR_CACHE_DIR": str(Path(__file__).parents[2] / "build" / "inductor"),
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}
IDLE_SECONDS = 6 * 3600  # other tests may run for long between two of Python, on a slow machine


def set_environment() -> None:
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


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


def receive(connection: socket.socket) -> tuple[dict, list[int]] | None:
    """Nothing from a client that was killed before it had sent all of its request."""
    head, files, _, _ = socket.recv_fds(connection, 4, 3)
    if head:
        [size] = struct.unpack("i", head)
        with connection.makefile("rb") as stream:
            text = stream.read(size)
        if len(text) == size:
            return json.loads(text), files
    for file in files:
        os.close(file)
    return None


def become(request: dict, files: list[int]) -> None:
    """The forked process takes over what its client has."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    faulthandler.enable()  # a rank that a signal ends says where it was
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(":") if path and path not in sys.path]
    sys.path[:0] = paths
    if any(os.path.exists(os.path.join(path, "sitecustomize.py")) for path in paths):
        sys.modules.pop("sitecustomize", None)
        importlib.import_module("sitecustomize")  # as an interpreter does when it starts


class Server:
    """With `input_ends` it ends when standard input does, otherwise after IDLE_SECONDS without a request."""

    def __init__(self, listener: socket.socket, input_ends: bool):
        self._patience = None if input_ends else IDLE_SECONDS
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
        if input_ends:
            self._selector.register(0, selectors.EVENT_READ, self._stop)

    def serve(self) -> list[str]:
        """Returns in forked processes only: what they are to run."""
        while True:
            events = self._selector.select(self._patience)
            if not events and not self._running:
                self._stop(None)
            for key, _ in events:
                words = key.data(key.fileobj)
                if words:
                    return words

    def _start(self, _) -> list[str] | None:
        connection, _ = self._listener.accept()
        received = receive(connection)
        if received is None:
            connection.close()
            return None
        request, files = received
        if not request["words"]:
            self._stop(None)
        process = os.fork()
        if process == 0:
            for other in (self._listener, connection, *self._running.values()):
                other.close()
            become(request, files)
            return request["words"]
        for file in files:
            os.close(file)
        self._running[process] = connection
        self._selector.register(connection, selectors.EVENT_READ, lambda _: self._kill(process, connection))
        return None

    def _reap(self, _) -> None:
        os.read(self._ended, 4096)
        for process in list(self._running):
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                with self._running.pop(process) as connection:
                    if connection in self._selector.get_map():
                        self._selector.unregister(connection)
                        with contextlib.suppress(ConnectionError):  # its client was killed meanwhile
                            connection.sendall(struct.pack("i", os.waitstatus_to_exitcode(status)))

    def _kill(self, process: int, connection: socket.socket) -> None:
        """Its client is gone: whoever started that one killed it."""
        if self._running.get(process) is connection:  # otherwise it ended among the same events
            self._selector.unregister(connection)
            os.kill(process, signal.SIGKILL)

    def _stop(self, _) -> None:
        for process in self._running:
            os.kill(process, signal.SIGKILL)
        os._exit(0)


def listener_at(path: str) -> socket.socket:
    """Enters the socket's folder, because the path of a socket may have 107 characters only."""
    os.chdir(os.path.dirname(path))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.basename(path))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.basename(path))
    listener.listen(64)
    return listener


def serve(path: str, modules: list[str], input_ends: bool) -> list[str]:
    set_environment()
    answer = os.dup(1)
    os.dup2(2, 1)  # DeepSpeed prints when it is imported; whoever starts us waits for a line of ours alone
    for module in (*PRELOADED, *modules):
        importlib.import_module(module)
    # Otherwise every program would walk all that was imported when it ends, and so get a copy of that memory: a second of work.
    gc.collect()
    gc.freeze()
    listener = listener_at(path)
    os.write(answer, b"serves\n")
    os.close(answer)
    return Server(listener, input_ends).serve()


def start(path: str) -> None:
    words = [sys.executable, __file__, "serve-until-idle", path]
    with open(f"{path}.log", "wb") as log:
        server = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
    if not server.stdout.readline():
        sys.exit(f"the fork server ended with {server.wait()}; see {path}.log")


def stop(path: str) -> None:
    with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
        client = Path(__file__).with_name("fork_client.py")
        subprocess.run([sys.executable, "-IS", client, path], stderr=subprocess.DEVNULL, check=False)
        os.unlink(path)


def main() -> None:
    del sys.path[0]  # our own folder is none of the programs'
    match sys.argv[1:]:
        case ["start", path]:
            start(path)
        case ["stop", path]:
            stop(path)
        case ["serve-until-idle", path]:
            run(serve(path, [], input_ends=False))
        case [path, *modules]:
            run(serve(path, modules, input_ends=True))


if __name__ == "__main__":
    main()
