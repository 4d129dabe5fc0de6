"""Runs a training script with one silent bug, which is put into it from outside.

    torchrun --nproc-per-node 2 with_bug.py FAMILY BUG SCRIPT [options of the script]

The script is imported as a module, so that a bug can replace what it defines, and its `main()` is called, or its
`train()` where it has none.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    name, bug, script, *options = sys.argv[1:]
    # A bug imports the script, and what that imports, by the names that the script uses.
    sys.path[:0] = [str(Path(script).parent), str(HERE)]
    from catalogue import family

    planted = family(name).bug(bug)
    sys.argv = [script, *options]
    program = importlib.import_module(Path(script).stem)
    planted.plant()
    (getattr(program, "main", None) or program.train)()


if __name__ == "__main__":
    main()
