"""DDP over a part of the ranks, or over more than those that have different samples. --by divides the ranks:

tensor   layers that code of the program's own cuts over two ranks, DDP over the two that have the same part
samples  two ranks share the positions of the same samples, DDP over all four: its mean counts both

--axes NAMES declares the axes, the slowest first. --wrong plants an error: DDP over each rank alone, or a backward
that does not sum what the mean divides.
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
import ttrace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--by", choices=["tensor", "samples"], default="tensor")
parser.add_argument("--axes", nargs=2)
parser.add_argument("--inner", action="store_true", help="neighbours have different samples")
parser.add_argument("--wrong", action="store_true")
ARGS = parser.parse_args()
RANK, IS_PARALLEL = int(os.environ.get("RANK", 0)), "RANK" in os.environ
SIZE = 2 if IS_PARALLEL else 1
OUTER, INNER = divmod(RANK, SIZE)
BATCH, PART = (INNER, OUTER) if ARGS.inner else (OUTER, INNER)
if IS_PARALLEL:
    dist.init_process_group("gloo")
    mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
    batches, parts = (mesh[name].get_group() for name in (("inner", "outer") if ARGS.inner else ("outer", "inner")))


def summed(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    if IS_PARALLEL:
        dist.all_reduce(x, group=parts)
    return x


class Enter(torch.autograd.Function):
    """What all ranks of a group hold alike; their gradients are addends."""

    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        return summed(gradient)


class Leave(torch.autograd.Function):
    @staticmethod
    def forward(context, x, is_summed=False):
        context.is_summed = is_summed
        return summed(x)

    @staticmethod
    def backward(context, gradient):
        return (summed(gradient) if context.is_summed else gradient), None


class Cut(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        up, down = torch.randn(3 * width, width) * width**-0.5, torch.randn(width, 3 * width) * width**-0.5
        self.up = nn.Parameter(up.chunk(SIZE, 0)[PART].clone())
        self.down = nn.Parameter(down.chunk(SIZE, 1)[PART].clone())

    def forward(self, x):
        return x + Leave.apply(torch.tanh(Enter.apply(x) @ self.up.T) @ self.down.T)


class Tensor(nn.Module):
    """Its layers are cut."""

    def __init__(self):
        super().__init__()
        self.words, self.norm, self.head = nn.Embedding(40, 24), nn.LayerNorm(24), nn.Linear(24, 40)
        self.blocks = nn.ModuleList(Cut(24) for _ in range(2))

    def forward(self, tokens):
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Samples(nn.Module):
    """Its ranks share the positions, and each has the whole sum in the end. The mean of DDP counts it twice, so the
    backward of that sum is a sum as well."""

    def __init__(self):
        super().__init__()
        self.words, self.norm, self.head = nn.Embedding(40, 24), nn.LayerNorm(24), nn.Linear(24, 40)
        self.mix = nn.Sequential(nn.Linear(24, 48), nn.Tanh(), nn.Linear(48, 24))

    def forward(self, tokens):
        x = self.words(tokens.chunk(SIZE, 1)[PART])
        x = self.head(self.norm(x + self.mix(x))).sum(1, keepdim=True)
        return Leave.apply(x, not ARGS.wrong)


torch.manual_seed(0)
model = (Tensor if ARGS.by == "tensor" else Samples)().to(ttrace.dtype(torch.float32))
if IS_PARALLEL:
    alone = [dist.new_group([rank]) for rank in range(4)][RANK]
    group = dist.group.WORLD if ARGS.by == "samples" else alone if ARGS.wrong else batches
    model = DistributedDataParallel(model, process_group=group)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
axes = dict.fromkeys(ARGS.axes, 2) if ARGS.axes and IS_PARALLEL else None
tracer = ttrace.attach(model, optimizer=optimizer, axes=axes)
generator = torch.Generator().manual_seed(1)
for number in range(2):
    tokens, targets = torch.randint(40, (2, 8, 12), generator=generator)
    tokens, targets = tokens.chunk(SIZE)[BATCH], targets.chunk(SIZE)[BATCH]
    with tracer.step(number):
        scores = model(tokens)
        nn.functional.cross_entropy(scores.flatten(0, 1), targets[:, : scores.shape[1]].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
if IS_PARALLEL:
    dist.destroy_process_group()
