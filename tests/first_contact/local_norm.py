# pytorch/pytorch#170862 (2025-12-19): under FSDP2 gradients are clipped by the norm of a rank's own shards. Planted as a function of
# the program's own, as trainers have one. Right: the squares of all shards are summed over the ranks.
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def clip(parameters, limit):
    squares = torch.stack([local(p.grad).square().sum() for p in parameters]).sum()
    if world > 1 and "--bug" not in sys.argv:
        dist.all_reduce(squares)
    norm = squares.sqrt()
    for parameter in parameters:
        local(parameter.grad).mul_(torch.clamp(limit / (norm + 1e-6), max=1.0))
    return norm


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 6)).to(KIND)
if world > 1:
    dist.init_process_group("gloo")
    for layer in model[::2]:
        fully_shard(layer)
    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tracer = ttrace.attach(model, optimizer=optimizer)
x, y = torch.randn(8, 10, dtype=KIND), torch.randint(6, (8,))
with tracer.step(0):
    nn.functional.cross_entropy(model(x.chunk(world)[rank]), y.chunk(world)[rank]).backward()
    norm = clip(list(model.parameters()), 0.1)
    optimizer.step()
print(f"rank {rank}: norm {norm.item():.6f}", flush=True)
if world > 1:
    dist.destroy_process_group()
