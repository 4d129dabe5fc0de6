"""The map of the project: its rooms, their sizes, and what each includes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import sources
from include_graph import Graph, circles


def text(root: Path, graph: Graph, room_of: Callable[[str], str]) -> str:
    return "\n".join([*_rooms(root, graph, room_of), "", *_extremes(root), *_public(graph), *_circles(graph)])


def _rooms(root: Path, graph: Graph, room_of: Callable[[str], str]) -> list[str]:
    """One line for each room: files, lines, lines of code, and how often it includes which other rooms."""
    members = defaultdict(list)
    for path in graph.paths:
        members[room_of(graph.place(path))].append(path)
    below: dict[str, Counter[str]] = defaultdict(Counter)
    for arrow in graph.arrows:
        source, target = room_of(arrow.source_place), room_of(arrow.target_place)
        if source != target:
            below[source][target] += 1
    total: Counter[str] = Counter()
    lines = [f"{'room':32} {'files':>5} {'lines':>6} {'code':>6}  includes (how often)"]
    for room, paths in sorted(members.items()):
        count = sum(sources.read(root, path).count("\n") for path in paths)
        code = sum(sources.code_lines(root, path) for path in paths)
        arrows = ", ".join(f"{target} {times}" for target, times in below[room].most_common())
        lines.append(f"{room:32} {len(paths):5} {count:6} {code:6}  {arrows}".rstrip())
        total += Counter(files=len(paths), lines=count, code=code)
    return [*lines, f"{'all':32} {total['files']:5} {total['lines']:6} {total['code']:6}"]


def _extremes(root: Path) -> list[str]:
    paths = sources.files(root, sources.PRODUCT, sources.CPP + sources.PYTHON)
    functions = sources.functions(root, paths)
    if not functions:
        return []
    largest = max(paths, key=lambda path: sources.read(root, path).count("\n"))
    longest = max(functions, key=lambda function: function.length)
    return [
        f"largest file: {largest}, {sources.read(root, largest).count(chr(10))} lines",
        f"longest function: {longest.name} in {longest.path}:{longest.line}, {longest.length} lines",
    ]


def _public(graph: Graph) -> list[str]:
    names = [path.split("/")[-1].removesuffix(".h") for path in graph.paths if path.startswith("include/")]
    return [f"public headers: {len(names)} ({' '.join(sorted(names))})"]


def _circles(graph: Graph) -> list[str]:
    counts = [f"{len(circles(arrows))} of {level}s" for level, arrows in graph.levels().items()]
    return [f"circles: {', '.join(counts)}"]
