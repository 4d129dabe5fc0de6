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

# These are too long today and are being split. Nobody may add one, and whoever splits one deletes it here.
KNOWN_FUNCTIONS: set[str] = set()
KNOWN_FILES: set[str] = set()


def long_functions(root: Path) -> dict[str, str]:
    """The sentence by "path: function"."""
    found = {}
    for folders, limit, _ in LIMITS:
        for function in sources.functions(root, sources.files(root, folders, sources.CPP + sources.PYTHON)):
            if function.length > limit:
                found[f"{function.path}: {function.name}"] = (
                    f"{function.path}:{function.line}: {function.name} has {function.length} lines; "
                    f"split it, {limit} are allowed"
                )
    return found


def long_files(root: Path) -> dict[str, str]:
    found = {}
    for folders, _, limit in LIMITS:
        for path in sources.files(root, folders, sources.CPP + sources.PYTHON):
            count = sources.read(root, path).count("\n")
            if count > limit:
                found[path] = f"{path} has {count} lines; split it, {limit} are allowed"
    return found


def offences(found: dict[str, str], known: set[str]) -> list[str]:
    """New offences, and known ones that are gone but still listed."""
    new = [sentence for key, sentence in sorted(found.items()) if key not in known]
    gone = [
        f"{key} is no longer too long: delete it from the list of known offenders in .ci/lengths.py"
        for key in sorted(known - found.keys())
    ]
    return new + gone


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=sources.ROOT)
    root = parser.parse_args().root
    found = offences(long_functions(root), KNOWN_FUNCTIONS) + offences(long_files(root), KNOWN_FILES)
    return sources.finish("lengths", found)


if __name__ == "__main__":
    sys.exit(main())
