"""A module that returns what it computes and, next to it, its own input, which tensor parallelism redistributes
first. With --wrong, the rows of that input have changed places then."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
import ttrace
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module

TYPE = {"f32": torch.float32, "f64": torch.float64}[ttrace.precision("f32")]
RANKS = int(os.environ.get("WORLD_SIZE", "1"))


class Split(nn.Module):
    def forward(self, x):
        if not isinstance(x, DTensor):
            return torch.tanh(x), x
        handed_on = x.flip(0) if "--wrong" in sys.argv else x
        return torch.tanh(x), handed_on.redistribute(placements=[Shard(1)])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.split = Split()
        self.last = nn.Linear(8, 8)

    def forward(self, x):
        left, right = self.split(self.first(x))
        return self.last(left) + right


torch.manual_seed(1)
model = Model().to(TYPE)
samples = torch.randn(4, 8).to(TYPE)
if RANKS > 1:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
    distribute_module(model, mesh)
    samples = DTensor.from_local(samples, mesh, [Replicate()])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
tracer = ttrace.attach(model, optimizer=optimizer)
with tracer.step(0):
    model(samples).square().mean().backward()
    optimizer.step()
if RANKS > 1:
    dist.destroy_process_group()
