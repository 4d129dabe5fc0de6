"""Runs a script under a mode that counts operators, and prints the counts of every rank.

counted.py SCRIPT ...
"""

from __future__ import annotations

import atexit
import os
import runpy
import sys
from collections import Counter
from pathlib import Path

from torch.utils._python_dispatch import TorchDispatchMode

counts: Counter[str] = Counter()


class Operators(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        counts[str(function)] += 1
        return function(*args, **(kwargs or {}))


def report() -> None:
    rank = os.environ.get("RANK", "0")
    sys.stdout.flush()
    for count, name in sorted((count, name) for name, count in counts.items()):
        # A line at a time, which a pipe keeps whole: two ranks' blocks of more than 4096 bytes may be mixed within lines.
        os.write(1, f"rank {rank}: {count} {name}\n".encode())


sys.argv = sys.argv[1:]
sys.path.insert(0, str(Path(sys.argv[0]).parent))
atexit.register(report)
with Operators():
    runpy.run_path(sys.argv[0], run_name="__main__")
