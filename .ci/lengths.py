#!/usr/bin/env python3
"""Fails on a function or a file that is too long."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import sources

# Folders, and how many lines a function and a file of them may have.
LIMITS = (
    ((*sources.PRODUCT, ".ci"), 60, 500),
    (("tests",), 100, 1200),
)


def long_functions(root: Path) -> list[str]:
    found = []
    for folders, limit, _ in LIMITS:
        for function in sources.functions(root, sources.files(root, folders, sources.CPP + sources.PYTHON)):
            if function.length > limit:
                found.append(
                    f"{function.path}:{function.line}: {function.name} has {function.length} lines; "
                    f"split it, {limit} are allowed"
                )
    return found


def long_files(root: Path) -> list[str]:
    found = []
    for folders, _, limit in LIMITS:
        for path in sources.files(root, folders, (*sources.CPP, *sources.PYTHON, ".js")):
            count = sources.read(root, path).count("\n")
            if count > limit:
                found.append(f"{path} has {count} lines; split it, {limit} are allowed")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=sources.ROOT)
    root = parser.parse_args().root
    return sources.finish("lengths", [*long_functions(root), *long_files(root)])


if __name__ == "__main__":
    sys.exit(main())
