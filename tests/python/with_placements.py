"""Runs a training script with placements of another origin.

    with_placements.py none|derived [--annotations FILE] SCRIPT ...

With "none" and no file nothing says where a tensor lies, which is what `ttrace infer` has to find out.
"""

from __future__ import annotations

import functools
import runpy
import sys
from pathlib import Path

import ttrace

placements, *words = sys.argv[1:]
annotations = None
if words[0] == "--annotations":
    annotations, words = words[1], words[2:]
ttrace.attach = functools.partial(ttrace.attach, placements=placements, annotations=annotations)
sys.argv = words
sys.path.insert(0, str(Path(words[0]).parent))
runpy.run_path(words[0], run_name="__main__")
