"""A bug in code between two modules: the scale of an attention (--wrong). --shard: FSDP2 on one rank."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
import ttrace
from torch import nn
from torch.distributed.fsdp import fully_shard

TYPE = {"f32": torch.float32, "f64": torch.float64}[ttrace.precision("f32")]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0 if "--wrong" in sys.argv else None)
        return x + self.out(y.transpose(1, 2).flatten(2))


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), Block(), nn.Linear(32, 8)).to(TYPE)
if "--shard" in sys.argv:
    dist.init_process_group("gloo")
    fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tracer = ttrace.attach(model, optimizer=optimizer)
x, y = torch.randn(4, 12, 16).to(TYPE), torch.randint(8, (48,))
with tracer.step(0):
    F.cross_entropy(model(x).flatten(0, 1), y).backward()
    optimizer.step()
if "--shard" in sys.argv:
    dist.destroy_process_group()
