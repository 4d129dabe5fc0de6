"""Runs an example with --device cuda where there is no GPU, and prints what it asks of CUDA, one call a line.

    recorded_cuda.py SCRIPT [option...]

What is asked for is recorded in order: the current device, modules that move, process groups and meshes. A
module that moves stays where it is, Gloo takes the place of NCCL, and the run ends before the first step.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import torch
import torch.distributed as dist

GPUS = 2


def record(*words: object) -> None:
    print(*words, flush=True)


def recorded_move(own):
    def move(self, *args, **kwargs):
        devices = [word for word in args if isinstance(word, torch.device)]
        if devices:
            record("move", type(self).__name__, devices[0])
        return own(self, *(word for word in args if word not in devices), **kwargs)

    return move


def recorded_group(own):
    def init(backend, *args, **kwargs):
        record("group", backend)
        return own("gloo", *args, **kwargs)

    return init


def recorded_mesh(kind, shape, **options):
    record("mesh", kind)
    end()


def end(*args, **kwargs) -> None:
    record("dynamo", os.environ.get("TORCHDYNAMO_DISABLE", "on"))
    record("patches", "cpu" in sys.modules)
    sys.stdout.flush()
    os._exit(0)  # nothing else of the program runs


def main() -> None:
    script = Path(sys.argv[1]).resolve()
    sys.argv = [str(script), *sys.argv[2:]]
    sys.path.insert(0, str(script.parent))
    torch.backends.cuda.is_built = lambda: True
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: GPUS
    torch.cuda.set_device = lambda number: record("current", number)
    torch.nn.Module.to = recorded_move(torch.nn.Module.to)
    dist.init_process_group = recorded_group(dist.init_process_group)
    dist.device_mesh.init_device_mesh = recorded_mesh
    torch.cuda.current_device = end  # where Megatron-core puts its buffers
    if script.parent.name == "megatron_core":
        from megatron.core import tensor_parallel

        tensor_parallel.model_parallel_cuda_manual_seed = lambda seed: None
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
