#!/usr/bin/env python3
"""Fails on a circle of includes or imports, and on one that goes against the declared direction.

    .ci/layers.py          names every circle and every wrong arrow
    .ci/layers.py --map    prints the rooms, what they include, and the largest of their parts

A room is a folder of the table below, with its sub-folders. A module is a header with the source of the same
name. A public header belongs to the room of its source; one without a source is looked through, as if its
own includes stood in the file that includes it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import house_map
import include_graph
import sources
from include_graph import Arrow, Graph

# Each room and those directly below it. A room may use its own files, these rooms, and all that they may
# use. "include" stands for the public headers, "trace" for all rooms of trace/.
BELOW = {
    "trace": "trace/merge trace/sums",
    "trace/merge": "trace/file",
    "trace/file": "trace/place",
    "trace/place": "trace/base",
    "trace/sums": "trace/kernels",
    "trace/kernels": "trace/base",
    "trace/base": "",
    "hooks": "hooks/session",
    "hooks/session": "hooks/capture",
    "hooks/capture": "hooks/replace hooks/nudge hooks/write",
    "hooks/replace": "hooks/base",
    "hooks/nudge": "hooks/device",
    "hooks/write": "hooks/base",
    "hooks/device": "hooks/base",
    "hooks/base": "trace",
    "analysis/cli": "analysis",
    "analysis": "analysis/causes analysis/checks analysis/reports analysis/infer analysis/guess analysis/timeline",
    "analysis/causes": "analysis/checks",
    "analysis/checks": "analysis/bounds",
    "analysis/bounds": "analysis/align",
    "analysis/infer": "analysis/align",
    "analysis/guess": "analysis/rename",
    "analysis/rename": "analysis/align",
    "analysis/timeline": "analysis/align",
    "analysis/align": "analysis/findings",
    "analysis/reports": "analysis/findings",
    "analysis/findings": "trace",
    "reference": "include",
    "examples/megatron_mini": "include",
    "examples/first_trace": "include",
    "python/ttrace": "python/ttrace/programs",
    "python/ttrace/programs": "python/ttrace/base",
    "python/ttrace/base": "",
}

# A folder is judged once its lowest room exists.
LOWEST = {
    "trace": "trace/base",
    "hooks": "hooks/base",
    "analysis": "analysis/findings",
    "python": "python/ttrace/base",
}

# Folders that must not include LibTorch.
WITHOUT_TORCH = ("trace", "analysis")
TORCH = ("torch", "ATen", "c10")

# These circles exist today and are being opened. Each line names the modules or folders of one circle,
# without their paths. Nobody may add one, and whoever takes a module out of its circle deletes its name.
KNOWN_CIRCLES: list[str] = []


def room_of(path: str) -> str:
    """The longest folder of the table that holds `path`; the file's own folder where none does."""
    parts = path.split("/")[:-1]
    for count in range(len(parts), 0, -1):
        if "/".join(parts[:count]) in BELOW:
            return "/".join(parts[:count])
    return "/".join(parts)


def may_use(room: str) -> set[str]:
    """The rooms below `room`."""
    found: set[str] = set()
    waiting = BELOW.get(room, "").split()
    while waiting:
        below = waiting.pop()
        if below not in found:
            found.add(below)
            waiting += BELOW.get(below, "").split()
    return found


def wrong_arrow(root: Path, arrow: Arrow) -> str | None:
    """What is wrong with an include, or None."""
    source, target = room_of(arrow.source_place), room_of(arrow.target_place)
    if source == target or source not in BELOW:
        return None
    allowed = may_use(source)
    is_public = "include" in allowed and arrow.target.startswith("include/")
    if target in allowed or is_public or not _is_judged(root, source, target):
        return None
    return f"{arrow}; {source} may use {', '.join(sorted(allowed)) or 'no other room'}, but not {target}"


def _is_judged(root: Path, source: str, target: str) -> bool:
    """Arrows between two top-level folders always are; inside of one, once its rooms exist."""
    top = source.split("/")[0]
    if top != target.split("/")[0] or top not in LOWEST:
        return True
    return (root / LOWEST[top]).is_dir()


def wrong_directions(root: Path, graph: Graph) -> list[str]:
    found = [wrong_arrow(root, arrow) for arrow in graph.arrows]
    found += [
        f"{path}:{line} includes <{name}>; {graph.place(path).split('/')[0]}/ must not use LibTorch"
        for path, line, name in graph.external
        if graph.place(path).split("/")[0] in WITHOUT_TORCH and name.split("/")[0] in TORCH
    ]
    found += [
        f"{arrow}; a public header may include public headers only"
        for arrow in graph.direct
        if arrow.source.startswith("include/") and not arrow.target.startswith("include/")
    ]
    return sorted(sentence for sentence in found if sentence)


def circles(graph: Graph) -> list[str]:
    """A sentence for every circle of files, modules and folders that is not known."""
    known = [set(line.split()) for line in KNOWN_CIRCLES]
    seen: list[set[str]] = [set() for _ in known]
    found = []
    for level, arrows in graph.levels().items():
        for members, cycle in include_graph.circles(arrows):
            names = {member.split("/")[-1] for member in members}
            excused = [n for n, names_known in enumerate(known) if names <= names_known and level != "file"]
            for number in excused[:1]:
                seen[number] |= names
            if not excused:
                found.append(f"circle of {level}s {', '.join(members)}: {' -> '.join(map(str, cycle))}")
    for names_known, names in zip(known, seen):
        if names != names_known:
            gone = " ".join(sorted(names_known - names))
            found.append(f"no longer in a circle: {gone}; delete it from KNOWN_CIRCLES in .ci/layers.py")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--root", type=Path, default=sources.ROOT)
    parser.add_argument("--map", action="store_true", help="print the map and judge nothing")
    arguments = parser.parse_args()
    graph = include_graph.read(arguments.root)
    if arguments.map:
        print(house_map.text(arguments.root, graph, room_of))
        return 0
    return sources.finish(
        "layers", graph.unresolved + circles(graph) + wrong_directions(arguments.root, graph)
    )


if __name__ == "__main__":
    sys.exit(main())
