"""Reads stored traces, and compares them: for notebooks and scripts.

    import ttrace

    run = ttrace.open("runs/1/candidate")
    for record in run.find(r"/output/.*attention/"):
        print(record.id, record.shape, record.norm)
    weight = run["s0/main_grad/layers.0.mlp.weight/0"].merged()  # in single-device layout

    report = ttrace.diff("runs/1/reference", "runs/1/candidate")
    if report.diverged:
        print(report.first_divergence.id, report.first_divergence.source)
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from ._library import message_of
from .scalars import log_scalars


class TraceError(RuntimeError):
    """A trace that cannot be read, a tensor that it does not have, or traces that cannot be compared."""


@dataclass(frozen=True)
class Box:
    """Elements of a rank's part that lie next to each other in the logical tensor, too."""

    local_start: tuple[int, ...]
    logical_start: tuple[int, ...]
    extent: tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """What one rank recorded of a tensor. `addends`: of the sum over ranks that it is one of; 1: no sum.
    `time`: nanoseconds since the step began on that rank; None where the trace has no times."""

    rank: int
    dtype: str
    shape: tuple[int, ...]
    order: int
    norm: float
    max_abs: float
    nonfinite: int
    addends: int
    undeclared: bool
    time: int | None = None


@dataclass(frozen=True)
class Record:
    """One tensor of a trace, with the parts of all ranks."""

    id: str
    shape: tuple[int, ...]
    parts: tuple[Part, ...]
    _stored: Any = field(repr=False, compare=False)

    @property
    def norm(self) -> float:
        """That of the merged tensor, which a sketch knows as well. Raises TraceError where the parts make none."""
        norm = self._stored.norm(self.id)
        return float(norm) if norm is not None else float(self.merged().norm())

    def merged(self) -> torch.Tensor:
        """The tensor in single-device layout: shards joined, addends summed in float64.

        Raises TraceError where the parts make no tensor, or the trace keeps no more than a sketch of it. Where copies
        disagree, it is the lowest rank's.
        """
        tensors, findings = self._stored.merged(self.id)
        if not tensors and not findings:
            raise TraceError(
                f"of {self.id} the trace keeps a sketch, and none of its elements; trace with TTRACE_KEEP=bytes"
            )
        if not tensors:
            raise TraceError(f"the parts of {self.id} make no tensor: {'; '.join(findings)}")
        return tensors[0]

    @property
    def findings(self) -> list[str]:
        """What is wrong with the parts, such as copies that disagree; empty if nothing is."""
        return self._stored.merged(self.id)[1]

    def local(self, rank: int) -> torch.Tensor:
        """The part of one rank, as it was stored. Raises TraceError for a rank that has none."""
        try:
            return self._stored.local(self.id, rank)
        except RuntimeError as error:
            raise TraceError(message_of(error)) from None

    def boxes(self, rank: int) -> list[Box]:
        """Where the part of one rank lies in the logical tensor."""
        return [Box(*map(tuple, box)) for box in self._stored.boxes(self.id, rank)]


class Trace(Mapping[str, Record]):
    """A stored trace: records by id, in the order of execution."""

    def __init__(self, directory: str | os.PathLike[str], partial: bool = False):
        self.directory = Path(directory)
        try:
            self._stored = torch.classes.ttrace.StoredTrace(str(self.directory), partial)
        except RuntimeError as error:
            raise TraceError(message_of(error)) from None
        self.manifest: dict[str, Any] = json.loads((self.directory / "manifest.json").read_text(encoding="utf-8"))
        self._records = self._read()

    def _read(self) -> dict[str, Record]:
        shapes: dict[str, tuple[int, ...]] = {}
        parts: dict[str, list[Part]] = {}
        for name, rank, dtype, shape, logical, *values, time in self._stored.records():
            shapes.setdefault(name, tuple(logical))
            part = Part(rank, dtype, tuple(shape), *values, None if time < 0 else time)
            parts.setdefault(name, []).append(part)
        step = {name: int(name[1:].split("/")[0]) for name in parts}
        first = {name: min(part.order for part in own) for name, own in parts.items()}
        names = sorted(parts, key=lambda name: (step[name], first[name]))
        return {name: Record(name, shapes[name], tuple(parts[name]), self._stored) for name in names}

    def __getitem__(self, name: str) -> Record:
        try:
            return self._records[name]
        except KeyError:
            raise TraceError(f"{self.directory} has no tensor {name}; find(PATTERN) lists what it has") from None

    def __contains__(self, name: object) -> bool:
        return name in self._records

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"<ttrace.Trace {self.directory}: {len(self)} tensors, {self.manifest['world_size']} ranks>"

    def find(self, pattern: str) -> list[Record]:
        """The records whose id contains a match of this regular expression."""
        compiled = re.compile(pattern)
        return [record for name, record in self._records.items() if compiled.search(name)]

    @property
    def steps(self) -> list[int]:
        return list(self.manifest["steps"])

    @property
    def began(self) -> dict[tuple[int, int], int]:
        """By step and rank, when the step began there: nanoseconds since 1970. Empty for a trace without times."""
        return {(step, rank): began for step, rank, began in self._stored.began()}

    @property
    def notes(self) -> list[str]:
        """What the program noted, and, of an interrupted trace, what is missing."""
        return self._stored.notes()

    @property
    def not_seen(self) -> list[tuple[str, str]]:
        """What the run did that nobody could look at: a kind and a sentence each."""
        return self._stored.not_seen()


def open(directory: str | os.PathLike[str], partial: bool = False) -> Trace:
    """Opens the folder of one trace (`runs/1/candidate`). `partial`: also of an interrupted step what was written.

    Raises TraceError with the path and the cause.
    """
    return Trace(directory, partial)


@dataclass(frozen=True)
class Check:
    """The answer to one question about a tensor. Numbers are None where a question has none."""

    question: str
    tier: str
    holds: bool
    value: float | None
    bound: float | None
    share: float
    source: str
    sentence: str = ""
    where: str = ""
    ranks: tuple[int, ...] = ()
    terms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """What a comparison says of one tensor. docs/commands.md describes the fields."""

    id: str
    status: str
    finding: bool
    tier: str
    symptom: str
    cause: str
    ranks: tuple[int, ...]
    error: float | None
    reference_norm: float | None
    bound: float | None
    bound_source: str
    checks: tuple[Check, ...] = field(repr=False)
    json: Mapping[str, Any] = field(repr=False, compare=False)


@dataclass(frozen=True)
class FirstDivergence:
    """The first tensor, in the reference's order of execution, that round-off does not explain."""

    id: str
    cause: str
    signature: str | None
    probable_cause: str | None
    where_to_look: str
    source: str
    ranks: tuple[int, ...]


_NUMBERS = {"NaN": float("nan"), "Inf": float("inf"), "-Inf": float("-inf")}


def _number(value: Any) -> Any:
    return _NUMBERS.get(value, value) if isinstance(value, str) else value


def _check_of(json_: Mapping[str, Any]) -> Check:
    return Check(
        question=json_["question"], tier=json_["tier"], holds=json_["holds"], value=_number(json_["value"]),
        bound=_number(json_["bound"]), share=_number(json_["share"]), source=json_["source"],
        sentence=json_.get("sentence", ""), where=json_.get("where", ""), ranks=tuple(json_.get("ranks", ())),
        terms={name: _number(value) for name, value in json_.get("terms", {}).items()},
    )  # fmt: skip


def _verdict_of(json_: Mapping[str, Any]) -> Verdict:
    return Verdict(
        id=json_["id"], status=json_["status"], finding=json_["finding"], tier=json_["tier"],
        symptom=json_["symptom"], cause=json_["cause"], ranks=tuple(json_["ranks"]),
        error=_number(json_["error"]), reference_norm=_number(json_["reference_norm"]),
        bound=_number(json_["bound"]), bound_source=json_["bound_source"],
        checks=tuple(map(_check_of, json_["checks"])), json=json_,
    )  # fmt: skip


class Report(Mapping[str, Verdict]):
    """The result of comparing two traces: verdicts by id, in the reference's order of execution."""

    def __init__(self, json_: dict[str, Any], seconds: float | None = None):
        self.json = json_
        self.seconds = seconds  # that `check` or `diff` took
        self._verdicts = {tensor["id"]: _verdict_of(tensor) for tensor in json_["tensors"]}

    def __getitem__(self, name: str) -> Verdict:
        return self._verdicts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._verdicts)

    def __len__(self) -> int:
        return len(self._verdicts)

    def __repr__(self) -> str:
        first = self.first_divergence
        return f"<ttrace.Report {self.verdict}: {len(self)} tensors{f', first {first.id}' if first else ''}>"

    @property
    def verdict(self) -> str:
        """clean, diverged, undecided, incomplete, or not_judged."""
        return self.json["verdict"]

    @property
    def diverged(self) -> bool:
        return self.verdict == "diverged"

    @property
    def first_divergence(self) -> FirstDivergence | None:
        first = self.json["first_divergence"]
        if first is None:
            return None
        return FirstDivergence(
            first["id"], first["cause"], first["signature"], first["probable_cause"], first["where_to_look"],
            first["source"], tuple(first["ranks"]),
        )  # fmt: skip

    @property
    def findings(self) -> list[Verdict]:
        return [verdict for verdict in self._verdicts.values() if verdict.finding]

    @property
    def not_seen(self) -> list[dict[str, str]]:
        """What the verdict does not cover: kind, side (reference, candidate or both) and sentence of each."""
        return list(self.json["not_seen"])

    def to_pandas(self) -> Any:
        """A pandas.DataFrame with a row per tensor, by id. Raises ImportError where pandas is not installed."""
        import pandas

        columns = ("status", "finding", "symptom", "cause", "error", "reference_norm", "bound", "bound_source", "ranks")
        rows = [{"id": verdict.id} | {name: getattr(verdict, name) for name in columns} for verdict in self.values()]
        return pandas.DataFrame(rows, columns=["id", *columns]).set_index("id")

    def log_to(self, logger: Any, step: int | None = None, run_id: str | None = None) -> None:
        """Logs numbers of this report to a tracker of experiments, by its own API: a SummaryWriter of TensorBoard, a run of
        wandb, the module `mlflow`, or an MlflowClient with `run_id`. `ttrace.scalars.SCALARS` lists the numbers.

        Raises TypeError for what is none of these.
        """
        log_scalars(self, logger, step, run_id)

    @property
    def counts(self) -> dict[str, int]:
        return dict(self.json["counts"])


def _program() -> str:
    named = os.environ.get("TTRACE_PROGRAM") or shutil.which("ttrace")
    if not named:
        raise TraceError("the program `ttrace` is not in PATH; install the package, or set TTRACE_PROGRAM to its path")
    return named


def diff(reference: str | os.PathLike[str], candidate: str | os.PathLike[str] | None = None, *options: str) -> Report:
    """Compares two traces as `ttrace diff` does, whose options these are: `diff(a, b, "--steps", "0:1")`.

    With one folder, that of a check, its own traces are compared. Raises TraceError where no comparison is possible.
    """
    paths = [str(reference)] if candidate is None else [str(reference), str(candidate)]
    return _report_of("diff", *paths, *options)


def check(reference: str | os.PathLike[str], candidate: str, *options: str) -> Report:
    """Runs two programs and compares them as `ttrace check` does, whose options these are:
    `check("python train.py", "torchrun --nproc-per-node 2 train.py", "-o", "runs/tp2")`.

    `reference` is a command, or the folder of a stored trace. Raises TraceError where a program failed or no comparison
    is possible.
    """
    return _report_of("check", "--reference", str(reference), "--candidate", candidate, *options)


def _report_of(*words: str) -> Report:
    began = monotonic()
    result = subprocess.run([_program(), *words, "--format", "json"], capture_output=True, text=True, check=False)
    if not result.stdout.startswith("{"):
        raise TraceError(result.stderr.strip().removeprefix("ttrace: error: "))
    return Report(json.loads(result.stdout), monotonic() - began)
