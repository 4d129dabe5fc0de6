"""Runs a bug inside a large module under `ttrace check --zoom`, and judges which operator was named."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python")]

from bugs import BUGS, ZoomBug  # noqa: E402
from conftest import Checker, Outcome, python, torchrun  # noqa: E402

RANKS = 2


@dataclass(frozen=True)
class Named:
    """What the zoom named."""

    first: str  # id of the check's first divergence
    operator: str
    source: str
    backward: bool
    fault: str
    text: str  # all of it

    def is_operator_of(self, bug: ZoomBug) -> bool:
        side = {"candidate": "only_in_candidate", "reference": "only_in_reference"}.get(bug.only_in)
        sides = (side, "communication") if side == "only_in_candidate" else (side,)
        return (
            not bug.redeclared
            and self.operator.rstrip("_") == bug.operator
            and self.backward == bug.backward
            and (side is None or self.fault in sides)
        )

    def is_line_of(self, bug: ZoomBug) -> bool:
        return not bug.redeclared and Path(self.source).name == bug.line


def run(check: Checker, bug: ZoomBug) -> tuple[Outcome, Named]:
    script = f"{HERE / bug.script} --block {bug.block} --precision {bug.precision}"
    candidate = torchrun(RANKS, f"{script} --layout {bug.layout} --bug {bug.name}")
    outcome = check(python(script), candidate, "--zoom", steps="0:1")
    zoom = (outcome.report or {}).get("zoom") or {}
    named = zoom.get("operator") or {}
    return outcome, Named(
        outcome.first,
        named.get("name", ""),
        named.get("source", ""),
        named.get("backward", False),
        zoom.get("fault") or "",
        str(zoom),
    )


__all__ = ["BUGS", "Checker", "Named", "run"]
