#!/usr/bin/env python3
"""Prints how far a change reaches, which decides what has to be built and tested for it.

    pages       documentation alone
    judging     what judges traces: what is recorded of programs stays as it is
    programs    the Python package as well: no test that is linked with LibTorch can notice
    everything  all else, and where nobody knows what was changed

The change is what the working tree has and BASE has not: the argument, or TTRACE_CHANGED_SINCE, or where the branch left
origin's. A file that no line below names reaches everything.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# In order: the first pattern that matches decides; a * matches slashes, too.
PATTERNS = {
    "python/ttrace/_adapter.py": "everything",
    "python/ttrace/_library.py": "everything",
    "*.md": "pages",
    "docs/*": "pages",
    "man/*": "pages",
    "analysis/*CMakeLists.txt": "everything",
    "analysis/*": "judging",
    "python/*": "programs",
    "examples/*.py": "programs",
    "examples/*.ipynb": "programs",
    "tests/*CMakeLists.txt": "everything",
    "tests/python/*": "programs",
    "tests/frameworks/*": "programs",
    **{
        f"tests/{name}/*": "judging"
        for name in ("analysis", "cli", "end_to_end", "first_contact", "guess", "roc", "rules", "scoreboard")
    },
}
ORDER = ("pages", "judging", "programs", "everything")


def reach_of(path: str) -> str:
    return next((reach for pattern, reach in PATTERNS.items() if fnmatch.fnmatchcase(path, pattern)), "everything")


def reach(paths: Iterable[str]) -> str:
    """The farthest of any; of no path at all: everything, because then nobody knows."""
    return max((reach_of(path) for path in paths), key=ORDER.index, default="everything")


def _git(root: Path, *words: str) -> str | None:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def base_of(root: Path) -> str | None:
    """Where the branch left origin's; None where it has not, or nothing is known of an origin."""
    left = _git(root, "merge-base", "HEAD", "origin/HEAD") or _git(root, "merge-base", "HEAD", "origin/main")
    return left.strip() if left and left != _git(root, "rev-parse", "HEAD") else None


def changed(root: Path, base: str) -> list[str] | None:
    """Paths, those that git does not know yet among them; None if there is no such commit."""
    different = _git(root, "diff", "--name-only", "--no-renames", "-z", base, "--")
    new = _git(root, "ls-files", "--others", "--exclude-standard", "-z")
    return None if different is None else [path for path in (different + (new or "")).split("\0") if path]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", nargs="?", default=os.environ.get("TTRACE_CHANGED_SINCE"), metavar="BASE", help="a commit")
    base = parser.parse_args().base
    paths = changed(ROOT, base) if base else changed(ROOT, left) if (left := base_of(ROOT)) else []
    if paths is None:
        parser.error(f"git knows no commit '{base}'; name one that this clone has")
    print(reach(paths))
    return 0


if __name__ == "__main__":
    sys.exit(main())
