"""Runs a program in a layout, clean or with a bug, under `ttrace check`, and judges what it printed."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "python"))

from catalogue import Bug, Family, Layout, Program  # noqa: E402
from conftest import Checker, Outcome, python, torchrun  # noqa: E402


@dataclass(frozen=True)
class Clean:
    outcome: Outcome
    seconds: float

    @property
    def alarms(self) -> list[str]:
        """Ids of findings that the program did not declare, and names of passes that failed; one line of the error
        where nothing was compared."""
        if self.outcome.report is None:
            return [(self.outcome.errors.strip().splitlines() or ["no report"])[-1]]
        return [t["id"] for t in self.outcome.report["tensors"] if t["finding"]] + self.outcome.broken_off


@dataclass(frozen=True)
class Judged:
    """What a check makes of a bug."""

    found: bool
    located: bool
    first: str  # id of the first divergence
    signature: str
    as_declared: bool  # the signature is the declared one
    accepted: bool  # or one of the accepted ones
    named: bool | None  # whether the cause names what it must; None where nothing is declared
    error_over_bound: float | None
    sentence: str


def _script(program: Program, precision: str, options: str) -> str:
    return f"{program.script} {program.options} {options} --precision {precision}"


def _started(script: str, auto: bool) -> str:
    """With `auto` without the lines that the script has for TTrace."""
    return f"{HERE / 'without_lines.py'} {script}" if auto else script


def _with(layout: Layout, command: str) -> str:
    return f"env {layout.environment} {command}" if layout.environment else command


def _reference(program: Program, layout: Layout, precision: str, options: str, auto: bool) -> str:
    script = _started(_script(program, precision, options), auto)
    return _with(layout, python(f"{script} {layout.reference}", program.imports))


def run_clean(
    check: Checker, program: Program, layout: Layout, precision: str, options: str = "", auto: bool = False
) -> Clean:
    script = _started(f"{_script(program, precision, options)} {layout.options}", auto)
    candidate = _with(layout, torchrun(layout.ranks, script, program.imports))
    start = time.monotonic()
    reference = _reference(program, layout, precision, options, auto)
    outcome = check(reference, candidate, *layout.check, *_switch(program, auto), steps=program.steps)
    return Clean(outcome, time.monotonic() - start)


def run_bug(check: Checker, family: Family, bug: Bug, auto: bool = False) -> Judged:
    program = family.program(bug.program)
    layout = program.layout(bug.layout)
    script = _script(program, bug.precision, bug.options)
    planted = _started(f"{HERE / 'with_bug.py'} {family.name} {bug.name} {script} {layout.options}", auto)
    reference = _reference(program, layout, bug.precision, bug.options, auto)
    candidate = _with(layout, torchrun(layout.ranks, planted, program.imports))
    outcome = check(reference, candidate, *layout.check, *_switch(program, auto), steps=program.steps)
    return judge(bug, outcome)


def _switch(program: Program, auto: bool) -> tuple[str, ...]:
    return () if not auto else ("--auto",) if program.trains else ("--auto", "--inference")


def judge(bug: Bug, outcome: Outcome) -> Judged:
    if outcome.code != 1 or outcome.report is None or outcome.report["first_divergence"] is None:
        return Judged(False, False, "", "", False, False, None, None, outcome.summary())
    first = outcome.report["first_divergence"]
    signature = first["signature"] or ""
    error, bound = first["error"], first["bound"]
    return Judged(
        found=True,
        located=not bug.redeclared and re.fullmatch(bug.expected, first["id"]) is not None,
        first=first["id"],
        signature=signature,
        as_declared=signature == bug.signature[0],
        accepted=signature in bug.signature,
        named=_names(bug, outcome.report["diagnoses"][0]["named"] or {}) if bug.names else None,
        error_over_bound=error / bound if isinstance(error, float) and bound else None,
        sentence=first["probable_cause"] or first["cause"],
    )


def _names(bug: Bug, named: dict) -> bool:
    """Whether the cause names every axis, factor, rank and micro-batch of the declaration, and no other rank
    or axis."""
    plural = {"axis": "axes", "factor": "factors", "rank": "ranks", "microbatch": "microbatches"}
    declared: dict[str, set[str]] = {}
    for kind, value in (entry.split(maxsplit=1) for entry in bug.names):
        declared.setdefault(plural[kind], set()).add(value)
    for kind, values in declared.items():
        present = {_plain(value) for value in named.get(kind, [])}
        if not values <= present or (kind != "factors" and present != values):
            return False
    return True


def _plain(value) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
