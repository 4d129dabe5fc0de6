"""Runs a training script whose placements are not derived: undeclared.py [--annotations FILE] SCRIPT ...

What it records is what `ttrace infer` finds placements in, or, with its file, what that file says of them.
"""

from __future__ import annotations

import functools
import runpy
import sys
from pathlib import Path

import ttrace

words = sys.argv[1:]
annotations = None
if words[0] == "--annotations":
    annotations, words = words[1], words[2:]
ttrace.attach = functools.partial(ttrace.attach, placements="none", annotations=annotations)
sys.argv = words
sys.path.insert(0, str(Path(words[0]).parent))
runpy.run_path(words[0], run_name="__main__")
