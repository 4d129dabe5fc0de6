"""Keeps a process of a check's reference as it was when it had imported this package; later passes go on from there.

`ttrace check` runs the reference's program a dozen times, and to import torch takes a small program longer than its step. The
first of these processes forks here: one goes on, the other, the keeper, waits. For each later pass the keeper forks a process,
which goes on with the variables of that pass. What the program has done so far, it has done before it knows of a pass: with the
same interpreter, arguments, folder and environment, nothing of it can differ.

TTRACE_KEEPER names the check and a folder, "PID:FOLDER". Only where all of this is safe is anything kept: no thread that a fork
would lose, one rank, no GPU in use, and a check that is our ancestor, so that neither another machine nor a container is meant.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import selectors
import shutil
import signal
import socket
import struct
import sys
from pathlib import Path

VARIABLE = "TTRACE_KEEPER"
_OF_LAUNCHERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_INT = struct.Struct("i")
_NAME = Path("/proc/self/comm")


def keep() -> None:
    """Returns in every process that runs the program: in this one, and later in one for each pass that goes on from here."""
    check, _, folder = os.environ.pop(VARIABLE, "").partition(":")
    if folder and _is_known_safe(check) and (listener := _listener_in(folder)):
        sys.stdout.flush()
        sys.stderr.flush()
        ctypes.CDLL(None).fflush(None)
        if os.fork() == 0:
            try:
                _Keeper(listener, folder, int(check)).serve()
            except BaseException:  # or this process would run the first pass a second time
                os._exit(1)
        listener.close()


def _is_known_safe(check: str) -> bool:
    """Not where the system does not tell, as where /proc hides processes."""
    try:
        return _is_safe(int(check))
    except (OSError, ValueError):
        return False


def _is_safe(check: int) -> bool:
    torch = sys.modules.get("torch")
    return (
        hasattr(os, "pidfd_open")
        and len(os.listdir("/proc/self/task")) - 1 <= _threads_of_openblas()
        and not any(name in os.environ for name in _OF_LAUNCHERS)
        and not (torch is not None and torch.cuda.is_initialized())
        and _is_ancestor(check)
    )


def _threads_of_openblas() -> int:
    """NumPy's OpenBLAS starts threads when it is loaded. It ends them itself before a fork, and starts them again after it."""
    count = 0
    for path in {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "openblas" in line}:
        library = ctypes.CDLL(path)
        for name in ("scipy_openblas_get_num_threads64_", "scipy_openblas_get_num_threads", "openblas_get_num_threads64_", "openblas_get_num_threads"):
            if hasattr(library, name):
                count += getattr(library, name)() - 1
                break
    return count


def _is_ancestor(process: int) -> bool:
    current = os.getppid()
    while current not in (0, process):
        # "PID (NAME) STATE PARENT ...", and a name may have anything in it
        current = int(Path(f"/proc/{current}/stat").read_text().rpartition(")")[2].split()[1])
    return current == process


def _listener_in(folder: str) -> socket.socket | None:
    """Nothing where another process has kept itself there already."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(f"{folder}/keeper")
    except OSError:
        listener.close()
        return None
    listener.listen(64)
    return listener


class _Keeper:
    def __init__(self, listener: socket.socket, folder: str, check: int) -> None:
        self._own_name = _NAME.read_text()
        _NAME.write_text("ttrace-keeper")  # by which the check knows what it must not end with a pass
        os.setpgid(0, 0)  # what is sent to the group of the first pass is not for us
        with open(os.devnull, "r+b") as nothing:
            for number in range(3):
                os.dup2(nothing.fileno(), number)  # the log of the first pass ends with it
        gc.collect()
        gc.freeze()  # or a process that walks its objects copies the memory that it shares with us
        self._listener = listener
        self._folder = folder
        self._running: dict[int, socket.socket] = {}
        self._ended, self._wake = os.pipe()
        for end in (self._ended, self._wake):
            os.set_blocking(end, False)
        self._handlers = {number: signal.getsignal(number) for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)}
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, which is for the check
        signal.set_wakeup_fd(self._wake)
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._start)
        self._selector.register(self._ended, selectors.EVENT_READ, self._reap)
        self._selector.register(os.pidfd_open(check), selectors.EVENT_READ, self._stop)

    def serve(self) -> None:
        """Returns in forked processes only."""
        while True:
            for key, _ in self._selector.select():
                if key.data(key.fileobj):
                    return

    def _start(self, _) -> bool:
        connection, _ = self._listener.accept()
        head = connection.recv(_INT.size)
        [size] = _INT.unpack(head) if len(head) == _INT.size else [0]
        with connection.makefile("rb") as stream:
            text = stream.read(size)
        if size == 0 or len(text) < size:  # a check that ends, or a client that was killed
            connection.close()
            return self._stop(None) if len(head) == _INT.size and size == 0 else False
        process = os.fork()
        if process == 0:
            self._leave(connection)
            _become(json.loads(text), self._handlers)
            return True
        connection.sendall(_INT.pack(process))
        self._running[process] = connection
        self._selector.register(connection, selectors.EVENT_READ, lambda _: self._kill(process))
        return False

    def _leave(self, connection: socket.socket) -> None:
        """What the keeper has open, and its name, is none of the program's."""
        _NAME.write_text(self._own_name)
        self._selector.close()
        for other in (self._listener, connection, *self._running.values()):
            other.close()
        signal.set_wakeup_fd(-1)
        os.close(self._ended)
        os.close(self._wake)

    def _reap(self, _) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._ended, 4096)
        for process, connection in list(self._running.items()):
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                del self._running[process]
                self._selector.unregister(connection)
                with contextlib.suppress(OSError):  # nobody waits for it any more
                    connection.sendall(_INT.pack(status))
                connection.close()

    def _kill(self, process: int) -> None:
        """Who asked for it is gone."""
        if process in self._running:
            self._selector.unregister(self._running.pop(process))
            _kill_group(process)

    def _stop(self, _) -> bool:
        for process in self._running:
            _kill_group(process)
        shutil.rmtree(self._folder, ignore_errors=True)  # of a check that was killed
        os._exit(0)


def _kill_group(process: int) -> None:
    for target in (os.killpg, os.kill):  # it may not have its group yet
        with contextlib.suppress(ProcessLookupError):
            target(process, signal.SIGKILL)


def _become(request: dict, handlers: dict) -> None:
    """The process of a pass, as if it had been started for it."""
    os.setpgid(0, 0)
    for number, handler in handlers.items():
        signal.signal(number, handler if handler is not None else signal.SIG_DFL)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    for number in (1, 2):
        os.dup2(log, number)
    os.close(log)
    for name in [name for name in os.environ if name.startswith("TTRACE_")]:
        del os.environ[name]
    os.environ.update(request["variables"])
