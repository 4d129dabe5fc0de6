"""What the frameworks' tests run: programs in layouts, and silent bugs that are planted in them.

Each family (a folder with `programs.py` and `bugs.py`) lists its own. `python measure.py` and
`test_frameworks.py` run them under `ttrace check`, as a user does.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Layout:
    name: str  # "fsdp tp"
    ranks: int
    options: str = ""  # of the candidate
    reference: str = ""  # options of the reference alone
    precisions: tuple[str, ...] = ("f32", "bf16")
    check: tuple[str, ...] = ()  # options of `ttrace check`
    quick: bool = False  # in its first precision part of `./dev test`
    environment: str = ""  # of both runs: "NAME=VALUE ..."


@dataclass(frozen=True)
class Program:
    """A training script that takes --precision and has a function `main` (or `train`) without arguments. The
    lines that a user adds for TTrace end in `# ttrace`."""

    name: str  # "llama"
    script: Path
    layouts: tuple[Layout, ...]
    options: str = ""  # of reference and candidate
    needs: tuple[str, ...] = ()  # packages; where one cannot be imported, the program is skipped
    imports: tuple[str, ...] = ()  # modules that are imported once, for all runs
    steps: str = "0:2"
    trains: bool = True  # else it has no optimizer, and every call of its model is a step

    def layout(self, name: str) -> Layout:
        return next(layout for layout in self.layouts if layout.name == name)

    def missing(self) -> str:
        """The first module that cannot be imported; empty if all can."""
        return next((name for name in self.needs if importlib.util.find_spec(name) is None), "")

    def lines_added(self) -> int:
        """Of the script and of the files of its folder that it imports by `from X import` or `import X`."""
        return sum(
            bool(re.search(r"(?<!`)#\s*ttrace\b", line))  # and no mention of the mark
            for path in _own_files(self.script)
            for line in path.read_text().splitlines()
        )


def _own_files(script: Path) -> set[Path]:
    found, open_ = set(), {script}
    while open_:
        path = open_.pop()
        found.add(path)
        names = re.findall(r"^\s*(?:from|import)\s+(\w+)", path.read_text(), re.MULTILINE)
        neighbours = {path.with_name(f"{name}.py") for name in names}
        open_ |= {file for file in neighbours if file.exists()} - found
    return found


@dataclass(frozen=True)
class Bug:
    """A silent bug, declared before its first run. A declaration that is changed afterwards says why in
    `redeclared`, and its bug counts as not located."""

    name: str
    program: str
    layout: str  # of that program
    what: str
    expected: str  # the whole id of the first divergence, as a regular expression
    plant: Callable[[], None]  # patches the framework or the script's modules in every rank of the candidate
    signature: tuple[str, ...]  # the cause's, the best one first; any of the others is accepted
    names: tuple[str, ...] = ()  # what the cause must name: "axis tp", "factor 2", "rank 1", "microbatch 0"
    precision: str = "f32"
    options: str = ""  # of both runs, besides those of program and layout
    redeclared: str = ""
    quick: bool = False  # part of `./dev test`


@dataclass(frozen=True)
class Family:
    name: str
    programs: tuple[Program, ...]
    bugs: tuple[Bug, ...]

    def program(self, name: str) -> Program:
        return next(program for program in self.programs if program.name == name)

    def bug(self, name: str) -> Bug:
        return next(bug for bug in self.bugs if bug.name == name)


def family(name: str) -> Family:
    programs = importlib.import_module(f"{name}.programs").PROGRAMS
    bugs = importlib.import_module(f"{name}.bugs").BUGS
    return Family(name, tuple(programs), tuple(bugs))


def families() -> list[Family]:
    return [family(path.parent.name) for path in sorted(HERE.glob("*/programs.py"))]
