"""Norms of gradients of pipeline stages, by schedule, to show a defect of torch 2.13.0 (docs/found.md).

    torchrun --nproc-per-node 4 zero_bubble_fsdp.py InterleavedZeroBubble [--keep-gathered]

Four stages on two ranks, each sharded over two more, which see the same samples. The norms must not depend on the
schedule.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(x)))


def main(schedule: str, keep_gathered: bool) -> None:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
    rank = mesh["pp"].get_local_rank()
    stages = []
    for number in (rank, rank + 2):
        torch.manual_seed(number)
        model = nn.Sequential(Layer())
        for module in (model[0], model):
            fully_shard(module, mesh=mesh["dp"], reshard_after_forward=not keep_gathered)
        stages.append(PipelineStage(model, number, 4, torch.device("cpu"), group=mesh["pp"].get_group()))
    torch.manual_seed(7)
    samples, targets = torch.randn(8, 8), torch.randn(8, 8)
    pipeline = get_schedule_class(schedule)(stages, 4, loss_fn=nn.functional.mse_loss)
    pipeline.step(*((samples,) if rank == 0 else ()), target=targets)
    for stage in stages:
        for name, parameter in stage.submod.named_parameters():
            norm = None if parameter.grad is None else parameter.grad.full_tensor().norm().item()
            if mesh["dp"].get_local_rank() == 0:
                print(f"stage {stage.stage_index} {name}: {'no gradient' if norm is None else f'{norm:.4f}'}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], "--keep-gathered" in sys.argv)
