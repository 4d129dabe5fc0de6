"""torchtitan's own launcher, `-m torchtitan.train`, on CPUs, which cpu.py makes possible. Nothing here concerns TTrace.

    ttrace check --auto --reference "torchrun --nproc-per-node 1 launch.py --module configs --config small" \\
        --candidate "torchrun --nproc-per-node 2 launch.py --module configs --config small --parallelism.tensor_parallel_degree 2"
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import cpu

cpu.apply()


def main() -> None:
    runpy.run_module("torchtitan.train", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
