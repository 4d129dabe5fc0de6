"""Runs training programs under `ttrace check`, as a user does."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import re
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from fork_server import set_environment

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
set_environment()
# Seconds after which a program that a test started hangs: far more than any takes on the slowest machine.
HANG = 7200
PROGRAM = os.environ.get("TTRACE_PROGRAM", str(ROOT / "build" / "cpu" / "bin" / "ttrace"))


def asked(tensor: dict, question: str) -> dict | None:
    """The check of a report's tensor that asks `question`; None where nobody asked it."""
    return next((check for check in tensor["checks"] if check["question"] == question), None)


@dataclass
class Outcome:
    """Of one `ttrace check`: exit code, report (None where there is none), what it said on stderr, and its
    folder."""

    code: int
    report: dict | None
    errors: str
    folder: Path

    @property
    def first(self) -> str:
        """Id of the first divergence; empty where there is none."""
        found = (self.report or {}).get("first_divergence")
        return found["id"] if found else ""

    @property
    def broken_off(self) -> list[str]:
        """Passes that ran and failed, so that less was checked."""
        return self.report["broken_off"]

    def log(self, name: str) -> str:
        """What the program printed in a pass ("noise-1")."""
        return (self.folder / "logs" / f"{name}.log").read_text()

    def ids(self, status: str = "within") -> list[str]:
        return [tensor["id"] for tensor in self.report["tensors"] if tensor["status"] == status]

    def summary(self) -> str:
        if self.report is None:
            return self.errors
        wrong = [t["id"] + ": " + t["cause"] for t in self.report["tensors"] if t["cause"]][:5]
        return "\n".join([self.report["verdict"], *wrong, self.errors[-2000:]])


@functools.cache  # which keeps the pipe open
def fork_server(path: str, modules: tuple[str, ...] = ()) -> subprocess.Popen:
    """One of our own, which serves `path` until its standard input ends: with us at the latest."""
    starts = interpreter() if "TTRACE_FORK_SERVER" in os.environ else sys.executable
    words = [starts, HERE / "fork_server.py", path, *modules]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline(), "the fork server of the tests did not start"
    return process


@functools.cache
def interpreter(modules: tuple[str, ...] = ()) -> Path:
    """Takes a script or -m MODULE as Python does, and runs it with LibTorch and `modules` already imported."""
    folder = Path(tempfile.mkdtemp(prefix="ttrace-test-"))
    atexit.register(shutil.rmtree, folder)
    shared = os.environ.get("TTRACE_FORK_SERVER")  # ctest starts one for all files
    if shared and not modules:
        server = shared
    else:
        server = str(folder / "socket")
        fork_server(server, modules)
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {HERE / "fork_client.py"} {server} "$@"\n')
    program.chmod(0o700)
    return program


def python(command: str, modules: tuple[str, ...] = ()) -> str:
    return f"{interpreter(modules)} {command}"


def _free_port() -> int:
    """A port that no process listens on. The system gives none of this range to connections, of which Gloo opens many
    before the program listens here."""
    while True:
        port = random.SystemRandom().randrange(10000, 32768)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("localhost", port))
            return port


def torchrun(ranks: int, command: str, modules: tuple[str, ...] = ()) -> str:
    """`command` (a script and its arguments) on so many processes, on a port of its own."""
    os.environ["PYTHON_EXEC"] = str(interpreter())  # what it starts its ranks with
    run = f"-m torch.distributed.run --nproc-per-node {ranks} --master-port {_free_port()} {command}"
    own = f"env PYTHON_EXEC={interpreter(modules)} " if modules else ""
    return own + python(run, modules)


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    """What a test draws is the same in each run. Test files without torch do not import it for this."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(1)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PATH, whose `python` and `torchrun` start faster than those of .venv."""
    folder = tmp_path_factory.mktemp("programs")
    fast, torchrun = interpreter(), Path(sys.executable).with_name("torchrun")
    for name, text in {
        "python": f'case $1 in -m | [!-]*) exec {fast} "$@" ;; esac\nexec {sys.executable} "$@"',
        "torchrun": f'PYTHON_EXEC={fast} exec {fast} {torchrun} --master-port {_free_port()} "$@"',
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o700)
    return folder


class Checker:
    """Keeps references: programs that are compared with the same one run it once. Of other traces it keeps none
    if `keeps` is false. No check may take longer than `seconds`."""

    def __init__(self, folder: Path, seconds: float = HANG, keeps: bool = True):
        self._folder = folder
        self._keeps = keeps
        self._seconds = seconds
        self._references: dict[str, Path] = {}
        self._runs = 0
        self.last = folder  # of the latest check's traces

    def __call__(self, reference: str, candidate: str, *options: str, steps: str = "0:2") -> Outcome:
        self._runs += 1
        output = self.last = self._folder / f"run{self._runs}"
        stored = self._references.get(reference)
        source = ["--reference", str(stored), "--rerun", reference] if stored else ["--reference", reference]
        command = [
            PROGRAM, "check", "--steps", steps, "--format", "json", *source,
            "--candidate", candidate, "-o", str(output), "--timeout", str(HANG), *options,
        ]  # fmt: skip
        result = subprocess.run(command, capture_output=True, text=True, timeout=self._seconds, check=False)
        report = json.loads(result.stdout) if result.stdout.startswith("{") else None
        written = output / "reference"
        if (output / "reference-names").exists():  # --rename: its program's own names are there
            written = output / "reference-names" / "reference"
        if stored is None and (written / "manifest.json").exists():
            self._references[reference] = written
        for trace in () if self._keeps else output.iterdir():
            if trace.is_dir() and trace not in (written, written.parent):
                # A program of the fork server may outlive its check for a moment, and write meanwhile.
                shutil.rmtree(trace, ignore_errors=True)
        return Outcome(result.returncode, report, result.stderr, output)


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Checker:
    return Checker(tmp_path_factory.mktemp("check"))


def run_untraced(command: str) -> str:
    """What a program prints when nothing traces it."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TTRACE_")}
    result = subprocess.run(
        command, shell=True, capture_output=True, text=True, timeout=HANG, check=False, env=environment
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


def expect_equal_bits(traced: str, untraced: str) -> None:
    """Of losses and parameters, after each step that a run prints; lines of two ranks may run into each other. A check ends a program once its trace is complete, so
    that the last traced step may be missing."""
    printed = [re.findall(r"step \d loss [-\d.]+ [-\d.]+", text) for text in (traced, untraced)]
    assert len(printed[1]) == 4 and set(printed[0]) <= set(printed[1]), printed
    assert sum(line.startswith("step 0") for line in printed[0]) == 2, printed
