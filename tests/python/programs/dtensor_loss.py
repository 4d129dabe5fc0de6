"""A model of replicated DTensors on samples that a mesh cuts: the losses of samples are a DTensor, too. --wrong counts
those of the last rank twice."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
import ttrace
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module

TYPE = {"f32": torch.float32, "f64": torch.float64}[ttrace.precision("f32")]
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).to(TYPE)
x, y = torch.randn(8, 8).to(TYPE), torch.randn(8, 4).to(TYPE)
if RANKS > 1:
    dist.init_process_group("gloo")
    mesh = dist.device_mesh.init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp",))
    distribute_module(model, mesh)
    x, y = (DTensor.from_local(t.chunk(RANKS)[RANK], mesh, [Shard(0)]) for t in (x, y))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
tracer = ttrace.attach(model, optimizer=optimizer)
with tracer.step(0) as step:
    losses = (model(x) - y).square().mean(-1)
    step.loss(losses)
    if "--wrong" in sys.argv:
        losses = losses * (2 if RANK == RANKS - 1 else 1)
    losses.sum().backward()
    for parameter in model.parameters():
        if isinstance(parameter.grad, DTensor):
            parameter.grad = parameter.grad.redistribute(placements=[Replicate()])
    optimizer.step()
if RANKS > 1:
    dist.destroy_process_group()
