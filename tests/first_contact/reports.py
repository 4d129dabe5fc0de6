"""Public reports of silent bugs as programs, and where TTrace must find each: declarations.yaml; and programs in usual
idioms: idioms.yaml."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

import yaml

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "python"))

from conftest import Checker, Outcome, python, torchrun  # noqa: E402


@dataclass(frozen=True)
class Report:
    """`expect` matches the id of the first divergence of the wrong variant."""

    name: str
    expect: str
    report: str = ""
    folder: str = "."
    options: list[str] = field(default_factory=list)  # of `ttrace check`
    ranks: int = 2

    @property
    def script(self) -> Path:
        return HERE / self.folder / f"{self.name}.py"

    def run(self, check: Checker, bug: bool) -> Outcome:
        script = self.script
        reference, candidate = python(f"{script}"), torchrun(self.ranks, f"{script} {'--bug' if bug else ''}")
        options, steps = list(self.options), "0:1"
        if "--steps" in options:
            at = options.index("--steps")
            _, steps = options[at : at + 2]
            del options[at : at + 2]
        return check(reference, candidate, *options, steps=steps)

    def locates(self, outcome: Outcome) -> bool:
        return outcome.code == 1 and re.search(self.expect, outcome.first) is not None


def _declared(file: str, **more: str) -> list[Report]:
    declared = yaml.safe_load((HERE / file).read_text(encoding="utf-8"))
    return [Report(name, **fields, **more) for name, fields in declared.items()]


def reports() -> list[Report]:
    return _declared("declarations.yaml")


def idioms() -> list[Report]:
    return _declared("idioms.yaml", folder="idioms")
