#!/usr/bin/env python3
"""Fails on a circle of includes, on one against the declared direction, and on a folder that has none.

    .ci/layers.py          names every circle, every wrong arrow and every folder that is no room
    .ci/layers.py --map    prints the rooms, what they include, and the largest of their parts

A room is a folder of the table below. A module is a header with the source of the same name. A public header
belongs to the room of its source; one without a source is looked through, as if its own includes stood in
the file that includes it.
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
# use. "include" stands for the public headers. The link lines of the CMakeLists.txt name the same arrows.
BELOW = {
    "trace/samples": "trace/merge",
    "trace/merge": "trace/file",
    "trace/file": "trace/sums",
    "trace/place": "trace/base",
    "trace/sums": "trace/kernels trace/place",
    "trace/kernels": "trace/base",
    "trace/base": "",
    "hooks/session": "hooks/capture",
    "hooks/capture": "hooks/replace hooks/nudge hooks/write",
    "hooks/replace": "hooks/base trace/samples",
    "hooks/nudge": "hooks/device",
    "hooks/write": "hooks/base trace/merge",
    "hooks/device": "hooks/base hooks/device/cuda",
    "hooks/device/cuda": "trace/kernels",
    "hooks/base": "trace/place trace/sums",
    "analysis/cli/commands": "analysis/cli/options",
    "analysis/cli/options": "analysis/cli/run",
    "analysis/cli/run": "analysis analysis/gate analysis/guess analysis/infer analysis/timeline "
    "analysis/zoom",
    "analysis": "analysis/causes analysis/reports analysis/rename",
    "analysis/causes": "analysis/checks",
    "analysis/checks": "analysis/bounds",
    "analysis/bounds": "analysis/align",
    "analysis/gate": "analysis/reports analysis/align",
    "analysis/infer": "analysis/align",
    "analysis/guess": "analysis/rename",
    "analysis/rename": "analysis/align",
    "analysis/timeline": "analysis/align",
    "analysis/zoom": "analysis/align",
    "analysis/align": "analysis/findings",
    "analysis/reports": "analysis/findings",
    "analysis/findings": "trace/samples trace/sums",
    "reference": "include",
    "examples/megatron_mini/program": "examples/megatron_mini/faults",
    "examples/megatron_mini/faults": "examples/megatron_mini",
    "examples/megatron_mini": "include",
    "examples/first_trace": "include",
    "python/ttrace/auto": "python/ttrace",
    "python/ttrace/imports": "python/ttrace",
    "python/ttrace": "python/ttrace/programs",
    "python/ttrace/programs": "python/ttrace/base",
    "python/ttrace/base": "",
}

# These rooms include their sub-folders.
WITH_SUBFOLDERS = ("analysis/causes",)

# Folders that must not include LibTorch.
WITHOUT_TORCH = ("trace", "analysis")
TORCH = ("torch", "ATen", "c10")


def room_of(path: str) -> str:
    """The folder of `path`, or the room that includes this folder."""
    folder = path.rpartition("/")[0]
    return next((room for room in WITH_SUBFOLDERS if folder.startswith(room + "/")), folder)


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


def unknown_rooms(graph: Graph) -> list[str]:
    """A sentence for every folder with sources that no row of the table judges."""
    rooms = {room_of(path) for path in graph.paths if not path.startswith("include/")}
    return [f"{room} is no room; add it to BELOW in .ci/layers.py" for room in sorted(rooms - BELOW.keys())]


def wrong_arrow(arrow: Arrow) -> str | None:
    """What is wrong with an include, or None."""
    source, target = room_of(arrow.source_place), room_of(arrow.target_place)
    if source == target or source not in BELOW:
        return None
    allowed = may_use(source)
    is_public = "include" in allowed and arrow.target.startswith("include/")
    if target in allowed or is_public:
        return None
    return f"{arrow}; {source} may use {', '.join(sorted(allowed)) or 'no other room'}, but not {target}"


def wrong_directions(graph: Graph) -> list[str]:
    found = [wrong_arrow(arrow) for arrow in graph.arrows]
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
    """A sentence for every circle of files, modules and folders."""
    return [
        f"circle of {level}s {', '.join(members)}: {' -> '.join(map(str, cycle))}"
        for level, arrows in graph.levels().items()
        for members, cycle in include_graph.circles(arrows)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--root", type=Path, default=sources.ROOT)
    parser.add_argument("--map", action="store_true", help="print the map and judge nothing")
    arguments = parser.parse_args()
    graph = include_graph.read(arguments.root)
    if arguments.map:
        print(house_map.text(arguments.root, graph, room_of))
        return 0
    offences = graph.unresolved + unknown_rooms(graph) + circles(graph) + wrong_directions(graph)
    return sources.finish("layers", offences)


if __name__ == "__main__":
    sys.exit(main())
