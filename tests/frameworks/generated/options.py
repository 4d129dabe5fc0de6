"""Random options of training scripts: what each takes, which go together, and how they simplify.

A program is a table: the choices of every option, the simplest first, a rule that says which cannot be together, and
functions that write them down. scripts.py lists those of our scripts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
Case = dict[str, object]
MOST_RANKS = 4
ATTEMPTS = 2000


@dataclass(frozen=True)
class Program:
    script: Path
    choices: dict[str, tuple]  # by option; the first one is the simplest
    rare: tuple[str, ...]  # options that mostly have their simplest value
    ranks: Callable[[Case], int]
    problem: Callable[[Case], str]  # why these options cannot be together; empty if they can
    common: Callable[[Case], str]  # options of both runs
    candidate: Callable[[Case], str]
    reference: Callable[[Case], str] = lambda case: ""
    needs: tuple[str, ...] = ()  # modules

    def why_impossible(self, case: Case) -> str:
        ranks = self.ranks(case)
        if not 2 <= ranks <= MOST_RANKS:
            return f"{ranks} ranks"
        return self.problem(case)

    def draw(self, seed: int, precision: str | None = None) -> Case:
        source = random.Random(seed)
        for _ in range(ATTEMPTS):
            case: Case = {"seed": source.randrange(1, 1000)}
            for name, values in self.choices.items():
                is_simple = name in self.rare and source.random() < 0.7
                case[name] = values[0] if is_simple else source.choice(values)
            if precision is not None:
                case["precision"] = precision
            if not self.why_impossible(case):
                return case
        raise RuntimeError(f"{self.script}: no case was possible in {ATTEMPTS} attempts")

    def smaller(self, case: Case) -> Iterator[Case]:
        """Each option at its simplest value, then at simpler ones; what is left must still be possible."""
        for name, values in self.choices.items():
            if name not in case or case[name] not in values:
                continue
            for value in values[: values.index(case[name])]:
                simpler = {**case, name: value}
                if name != "precision" and not self.why_impossible(simpler):
                    yield simpler
        if case["seed"] != 1:
            yield {**case, "seed": 1}

    def text(self, case: Case) -> str:
        """`name=value` of what is not at its simplest."""
        entries = {name: value for name, value in case.items() if value != self.choices.get(name, (None,))[0]}
        return " ".join(f"{name}={value}" for name, value in entries.items())

    def case_of(self, text: str) -> Case:
        """Inverse of text()."""
        case: Case = {"seed": 1, **{name: values[0] for name, values in self.choices.items()}}
        for name, value in (entry.split("=", 1) for entry in text.split()):
            known = self.choices.get(name, (int(value),) if name == "seed" else ())
            found = [choice for choice in known if str(choice) == value]
            if not found:
                raise ValueError(f"{name}={value} is no option of {self.script}; it has {self.choices.get(name)}")
            case[name] = found[0]
        return case


def flags(case: Case, *names: str) -> str:
    """`--name` of switches that are on, `--name value` of others that are not None."""
    words = []
    for name in names:
        value = case[name]
        if value is True:
            words.append(f"--{name}")
        elif value not in (False, None):
            words.append(f"--{name} {value}")
    return " ".join(words)
