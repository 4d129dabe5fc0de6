"""The source files of the project, and what Universal Ctags and Python's own parser find in them."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CPP = (".h", ".cpp", ".cu", ".cuh")
PYTHON = (".py",)
PRODUCT = ("trace", "hooks", "analysis", "include", "reference", "examples", "python")
_SKIPPED = {"build", ".venv", ".git", "__pycache__", "runs"}


@dataclass(frozen=True)
class Tag:
    """One definition; `end` is its last line."""

    name: str
    kind: str  # class, struct, enum, enumerator, function, macro, member, namespace, union, variable
    path: str
    line: int
    end: int
    access: str = ""
    scope: str = ""
    type: str = ""
    properties: str = ""  # such as "static,inline" or "override"

    @property
    def length(self) -> int:
        return self.end - self.line + 1


def files(root: Path, folders: Iterable[str], suffixes: tuple[str, ...]) -> list[str]:
    """Paths below `root`, sorted. A folder that does not exist has no files."""
    found = []
    for folder in folders:
        for where, names, entries in os.walk(root / folder):
            names[:] = [name for name in names if name not in _SKIPPED]
            inside = Path(where).relative_to(root)
            found += [(inside / entry).as_posix() for entry in entries if entry.endswith(suffixes)]
    return sorted(set(found))


def read(root: Path, path: str) -> str:
    return (root / path).read_text(encoding="utf-8")


def without_comments(text: str) -> str:
    """C++ without comments; line breaks stay. A string that holds // loses its end, which no caller minds."""
    text = re.sub(r"/\*.*?\*/", lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text)


def code_lines(root: Path, path: str) -> int:
    """Lines that are neither blank nor only comment."""
    text = read(root, path)
    text = (
        re.sub(r"^\s*#.*", "", text, flags=re.MULTILINE) if path.endswith(".py") else without_comments(text)
    )
    return sum(1 for line in text.splitlines() if line.strip())


def tags(root: Path, paths: Iterable[str]) -> list[Tag]:
    """Definitions in C++ files."""
    listed = [path for path in paths if path.endswith(CPP)]
    if not listed:
        return []
    command = [
        _ctags(), "-L", "-", "-f", "-", "--languages=C++", "--langmap=C++:.h.cpp.cu.cuh", "--sort=no",
        "--excmd=number", "--fields=+neKast", "--fields-C++=+{properties}",
    ]  # fmt: skip
    output = subprocess.run(
        command, input="\n".join(listed), cwd=root, capture_output=True, text=True, check=True
    ).stdout
    return [_tag(line) for line in output.splitlines() if line and not line.startswith("!")]


def _ctags() -> str:
    for name in ("ctags-universal", "universal-ctags", "ctags"):
        if shutil.which(name):
            return name
    sys.exit("Universal Ctags is missing: `apt-get install universal-ctags`, or `./dev rules` does it.")


_SCOPES = ("class", "struct", "union", "enum", "namespace", "function")


def _tag(line: str) -> Tag:
    name, path, address, kind, *rest = line.split("\t")
    fields = dict(field.split(":", 1) for field in rest if ":" in field)
    number = int(address.rstrip(';"'))
    return Tag(
        name=name,
        kind=kind,
        path=path,
        line=number,
        end=int(fields.get("end", number)),
        access=fields.get("access", ""),
        scope=next((f"{word}:{fields[word]}" for word in _SCOPES if word in fields), ""),
        type=fields.get("typeref", ""),
        properties=fields.get("properties", ""),
    )


def python_functions(root: Path, paths: Iterable[str]) -> Iterator[Tag]:
    for path in paths:
        if path.endswith(PYTHON):
            for node in ast.walk(ast.parse(read(root, path), path)):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    yield Tag(node.name, "function", path, node.lineno, node.end_lineno or node.lineno)


def functions(root: Path, paths: Iterable[str]) -> list[Tag]:
    """Functions of C++ and Python files."""
    paths = list(paths)
    return [tag for tag in tags(root, paths) if tag.kind == "function"] + list(python_functions(root, paths))


def finish(rule: str, offences: list[str]) -> int:
    """Prints what breaks a rule; returns the exit code."""
    for offence in offences:
        print(f"{rule}: {offence}")
    print(f"{rule}: {len(offences)} offences" if offences else f"{rule}: passed")
    return 1 if offences else 0
