"""Who includes whom: files, modules (a header with its source) and folders, and the circles among them."""

from __future__ import annotations

import ast
import itertools
import os.path
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import sources

FOLDERS = (
    "trace",
    "hooks",
    "analysis",
    "include",
    "reference",
    "examples/megatron_mini",
    "examples/first_trace",
)
PACKAGE = "python/ttrace"
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)


@dataclass(frozen=True)
class Arrow:
    """`source` includes `target`. The places are the files whose folders count; see Graph.place()."""

    source: str
    line: int
    target: str
    source_place: str
    target_place: str

    def __str__(self) -> str:
        verb = "imports" if self.source.endswith(".py") else "includes"
        return f"{self.source}:{self.line} {verb} {self.target}"


@dataclass
class Graph:
    """All includes and imports between our own files."""

    paths: list[str] = field(default_factory=list)
    direct: list[Arrow] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)  # as `direct`, through public headers without source
    external: list[tuple[str, int, str]] = field(default_factory=list)  # path, line, <header>
    unresolved: list[str] = field(default_factory=list)
    bodies: dict[str, str] = field(default_factory=dict)  # source file by its header

    def place(self, path: str) -> str:
        """The file whose folder counts: of a header its source."""
        return self.bodies.get(path, path)

    def is_transparent(self, path: str) -> bool:
        return path.startswith("include/") and path not in self.bodies

    def module(self, path: str) -> str:
        return os.path.splitext(self.place(path))[0]

    def levels(self) -> dict[str, dict[tuple[str, str], Arrow]]:
        """By level one arrow for each pair of files, modules or folders."""
        result: dict[str, dict[tuple[str, str], Arrow]] = {"file": {}, "module": {}, "folder": {}}
        for arrow in self.direct:
            result["file"].setdefault((arrow.source, arrow.target), arrow)
            pair = (self.module(arrow.source), self.module(arrow.target))
            if pair[0] != pair[1]:
                result["module"].setdefault(pair, arrow)
        for arrow in self.arrows:
            pair = (folder_of(arrow.source_place), folder_of(arrow.target_place))
            if pair[0] != pair[1]:
                result["folder"].setdefault(pair, arrow)
        return result


def folder_of(path: str) -> str:
    """The main.cpp of a program puts its folders together: it is above all of them."""
    folder, name = os.path.split(path)
    return path if name == "main.cpp" else folder


def read(root: Path) -> Graph:
    graph = Graph()
    cpp = sources.files(root, FOLDERS, sources.CPP)
    python = sources.files(root, (PACKAGE,), sources.PYTHON)
    graph.paths = cpp + python
    included = _includes(root, cpp, graph)
    graph.bodies = _bodies(cpp, included)
    for source, line, target in [*included, *_imports(root, python)]:
        graph.direct.append(_arrow(graph, source, line, target))
    _look_through(graph)
    return graph


def _arrow(graph: Graph, source: str, line: int, target: str) -> Arrow:
    return Arrow(source, line, target, graph.place(source), graph.place(target))


# --- C++ -------------------------------------------------------------------------------------------


def _includes(root: Path, paths: list[str], graph: Graph) -> list[tuple[str, int, str]]:
    """Including file, line, included file; fills what is external and what is not there."""
    known, found = set(paths), []
    for path in paths:
        text = sources.without_comments(sources.read(root, path))
        for match in _INCLUDE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            bracket, name = match.groups()
            target = _resolve(path, bracket, name, known)
            if target:
                found.append((path, line, target))
            elif bracket == "<" and not name.startswith("ttrace/"):
                graph.external.append((path, line, name))
            else:
                graph.unresolved.append(f"{path}:{line} includes {name}, which no file of the project is")
    return found


def _resolve(path: str, bracket: str, name: str, known: set[str]) -> str | None:
    """Where the compiler finds it: next to the file, in a folder around it, at the root, in include/."""
    folder = os.path.dirname(path)
    candidates = [f"include/{name}"]
    if bracket == '"':
        around = [folder]
        while around[-1]:
            around.append(os.path.dirname(around[-1]))
        candidates = [os.path.normpath(os.path.join(where, name)) for where in around] + candidates
    return next((candidate for candidate in candidates if candidate in known), None)


def _bodies(paths: list[str], included: list[tuple[str, int, str]]) -> dict[str, str]:
    """The source of each header: of the same name next to it, or else of the same name and including it."""
    known, found = set(paths), {}
    for source, _, header in included:
        if not source.endswith(".h") and _stem(source) == _stem(header) and header.endswith(".h"):
            has_own = os.path.splitext(source)[0] + ".h"
            if header == has_own or (has_own not in known and header.startswith("include/")):
                found[header] = source
    return found


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _look_through(graph: Graph) -> None:
    """Public headers without a source belong to no room: what they include counts for who includes them."""
    below, outside = defaultdict(list), defaultdict(list)
    for arrow in graph.direct:
        below[arrow.source].append(arrow.target)
    for path, _, name in graph.external:
        outside[path].append(name)
    for arrow in graph.direct:
        if graph.is_transparent(arrow.source):
            continue
        waiting, seen = [arrow.target], {arrow.target}
        while waiting:
            target = waiting.pop()
            if not graph.is_transparent(target):
                graph.arrows.append(_arrow(graph, arrow.source, arrow.line, target))
                continue
            graph.external += [(arrow.source, arrow.line, name) for name in outside[target]]
            fresh = [path for path in below[target] if path not in seen]
            seen.update(fresh)
            waiting += fresh


# --- Python ----------------------------------------------------------------------------------------


def _imports(root: Path, paths: list[str]) -> Iterator[tuple[str, int, str]]:
    """Importing file, line, imported file; imports within functions and for type checkers count, too."""
    known = set(paths)
    for path in paths:
        for node in ast.walk(ast.parse(sources.read(root, path), path)):
            for name in _imported(path, node):
                target = _module_file(name, known)
                if target and target != path:
                    yield path, node.lineno, target


def _imported(path: str, node: ast.AST) -> Iterable[str]:
    """Dotted names: of `from a import b` both a.b and, where that is no file, a."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = (node.module or "").split(".") if node.module else []
    if node.level:
        around = os.path.dirname(os.path.relpath(path, os.path.dirname(PACKAGE))).split("/")
        base = around[: len(around) - node.level + 1] + base
    return [".".join([*base, alias.name]) for alias in node.names]


def _module_file(name: str, known: set[str]) -> str | None:
    parts = name.split(".")
    if parts[0] != os.path.basename(PACKAGE):
        return None
    for count in (len(parts), len(parts) - 1):
        stem = os.path.dirname(PACKAGE) + "/" + "/".join(parts[:count])
        for candidate in (f"{stem}.py", f"{stem}/__init__.py"):
            if candidate in known:
                return candidate
    return None


# --- circles ---------------------------------------------------------------------------------------


def circles(arrows: dict[tuple[str, str], Arrow]) -> list[tuple[list[str], list[Arrow]]]:
    """Groups of nodes that reach each other: their names, and the arrows of one shortest circle."""
    below = defaultdict(list)
    for source, target in arrows:
        below[source].append(target)
    found = []
    for group in _strong_groups(below):
        inside = {node: sorted(set(below[node]) & set(group)) for node in group}
        path = min((_shortest(inside, node) for node in group), key=len)
        found.append((group, [arrows[pair] for pair in itertools.pairwise(path)]))
    return found


def _reached(below: dict[str, list[str]], start: str) -> set[str]:
    seen, waiting = set(), [start]
    while waiting:
        for node in below.get(waiting.pop(), []):
            if node not in seen:
                seen.add(node)
                waiting.append(node)
    return seen


def _strong_groups(below: dict[str, list[str]]) -> list[list[str]]:
    reached = {node: _reached(below, node) for node in list(below)}
    groups = set()
    for node, targets in reached.items():
        if node in targets:
            groups.add(tuple(sorted(other for other in targets if node in reached.get(other, ()))))
    return [list(group) for group in sorted(groups)]


def _shortest(below: dict[str, list[str]], start: str) -> list[str]:
    """The shortest way from `start` back to it."""
    ways = [[start]]
    seen = set()
    for way in ways:  # grows while we walk: breadth first
        for node in below[way[-1]]:
            if node == start:
                return [*way, start]
            if node not in seen:
                seen.add(node)
                ways.append([*way, node])
    raise AssertionError(f"{start} is in no circle")
