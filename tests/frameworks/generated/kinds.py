"""Kinds of random programs: what draws a case, checks it, and finds simpler ones that fail in the same way."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python")]

import graphs  # noqa: E402
from conftest import Checker, Outcome, python, torchrun  # noqa: E402
from options import Program  # noqa: E402
from scripts import PROGRAMS  # noqa: E402

CLEAN, ALARM, ERROR, REFUSED = "clean", "ALARM", "ERROR", "refused"
UNTRACED_SECONDS = 2400


@dataclass
class Result:
    judgement: str
    detail: str = ""
    tensors: int = 0
    report: dict | None = None


def judge(outcome: Outcome) -> Result:
    report = outcome.report
    tensors = (report or {}).get("counts", {}).get("tensors", 0)
    if report is not None and outcome.broken_off:
        return Result(ALARM, outcome.broken_off[0], tensors, report)
    if outcome.code == 0:
        return Result(CLEAN, tensors=tensors, report=report)
    if outcome.code == 1:
        first = report["first_divergence"] or {}
        return Result(ALARM, f"{first.get('id')}: {first.get('cause')}", tensors, report)
    lines = [line.strip() for line in outcome.errors.strip().splitlines()]
    return Result(ERROR, next((line for line in lines if "raised" in line), (lines or ["no message"])[-1]))


class Kind:
    """Of programs; a case is what its `draw` returns."""

    steps = "0:1"

    def missing(self) -> str:
        """What such a program needs and is not there; empty if all is."""
        return ""

    def commands(self, case) -> tuple[str, str, int]:
        """The script with options of the reference, that of the candidate, and the candidate's ranks."""
        raise NotImplementedError

    def run(self, case, check: Checker) -> Result:
        reference, candidate, ranks = self.commands(case)
        try:
            result = judge(check(python(reference), torchrun(ranks, candidate), steps=self.steps_of(case)))
        except subprocess.TimeoutExpired as late:
            result = Result(ERROR, f"the check took longer than {late.timeout:g} s")
        if result.judgement == ERROR:
            refusal = untraced_failure(python(reference)) or untraced_failure(torchrun(ranks, candidate))
            if refusal:
                return Result(REFUSED, refusal)
        return result

    def steps_of(self, case) -> str:
        return self.steps

    def shown(self, case) -> str:
        """The commands that check it."""
        reference, candidate, ranks = self.commands(case)
        return (
            f'ttrace check --steps {self.steps_of(case)} --reference "python {reference}" \\\n'
            f'    --candidate "torchrun --nproc-per-node {ranks} {candidate}"'
        )


class Graphs(Kind):
    """Operator graphs, of which each is a script."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.scripts: dict[str, Path] = {}

    def draw(self, seed: int, precision: str | None) -> graphs.Graph:
        return graphs.draw(seed, precision)

    case_of = staticmethod(graphs.graph_of)
    smaller = staticmethod(graphs.smaller)

    def text(self, graph) -> str:
        return graph.text()

    def commands(self, graph) -> tuple[str, str, int]:
        script = self.scripts.get(graph.text())
        if script is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            script = self.folder / f"graph{len(self.scripts) + 1}.py"
            script.write_text(graphs.script_of(graph))
            self.scripts[graph.text()] = script
        return str(script), str(script), graph.ranks

    def shown(self, graph) -> str:
        return graphs.script_of(graph)


class Options(Kind):
    """Options of a training script."""

    def __init__(self, program: Program):
        self.program = program
        self.draw, self.text = program.draw, program.text
        self.case_of, self.smaller = program.case_of, program.smaller

    def missing(self) -> str:
        if not self.program.script.exists():
            return str(self.program.script)
        needs = self.program.needs
        return next((n for n in needs if importlib.util.find_spec(n.partition(".")[0]) is None), "")

    def commands(self, case) -> tuple[str, str, int]:
        both = f"{self.program.script} {self.program.common(case)}"
        reference, candidate = self.program.reference(case), self.program.candidate(case)
        return f"{both} {reference}".strip(), f"{both} {candidate}".strip(), self.program.ranks(case)

    def steps_of(self, case) -> str:
        return f"0:{case.get('steps', 1)}"


def kinds(folder: Path) -> dict[str, Kind]:
    """Every kind by name. Scripts of graphs are written into the folder."""
    return {"graphs": Graphs(folder), **{name: Options(program) for name, program in PROGRAMS.items()}}


NAMES = ("graphs", *PROGRAMS)


def untraced_failure(command: str) -> str:
    """What the program itself says where it fails without TTrace; empty where it runs."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TTRACE_")}
    run = subprocess.Popen(
        command, shell=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment,
        start_new_session=True,
    )  # fmt: skip
    try:
        _, errors = run.communicate(timeout=UNTRACED_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.communicate()
        return f"it does not end within {UNTRACED_SECONDS} s"
    if run.returncode == 0:
        return ""
    said = [line for line in errors.splitlines() if "Error: " in line and "torch.distributed.elastic" not in line]
    return (said or ["no message"])[0].split("]:", 1)[-1].strip()


def shrunk(kind: Kind, case, result: Result, check: Checker, tries: int):
    """The smallest case found that fails in the same way, and how it fails."""
    tried = {kind.text(case)}
    while tries > 0:
        for simpler in kind.smaller(case):
            if kind.text(simpler) in tried:
                continue
            tried.add(kind.text(simpler))
            tries -= 1
            found = kind.run(simpler, check)
            if found.judgement == result.judgement:
                case, result = simpler, found
                break
            if tries == 0:
                break
        else:
            return case, result
    return case, result
