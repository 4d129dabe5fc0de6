"""Runs a training script with one silent bug, which is put into it from outside.

    torchrun --nproc-per-node 2 with_bug.py FAMILY BUG SCRIPT [options of the script]
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    name, bug, script, *options = sys.argv[1:]
    # A bug patches the modules that the script imports, so both import them by the same names.
    sys.path[:0] = [str(Path(script).parent), str(HERE)]
    from catalogue import family

    planted = family(name).bug(bug)
    sys.argv = [script, *options]
    planted.plant()
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
