"""Runs a script whose optimizers update lists of tensors by default, as they do on GPUs.

    lists_on_cpu.py SCRIPT [option...]
"""

from __future__ import annotations

import importlib
import runpy
import sys
from pathlib import Path

importlib.import_module("torch.optim.optimizer")._get_foreach_kernels_supported_devices = lambda: ["cpu"]
script = str(Path(sys.argv[1]).resolve())
sys.argv = [script, *sys.argv[2:]]
sys.path[0] = str(Path(script).parent)
runpy.run_path(script, run_name="__main__")
