# meta-pytorch/torchrec#3199 (2025-07-16): the largest gradient is raised to the power 1 / inf, so that the norm is 1 whatever the
# gradients are, and clipping has another limit. Right: the maximum is the norm.
import math
import os
import sys
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Ranking(nn.Module):
    def __init__(self):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(30, 8, mode="sum") for _ in range(3))
        self.over = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, ids):
        return self.over(torch.cat([bag(ids[:, i]) for i, bag in enumerate(self.bags)], -1)).sum(-1)


def total(parameters, kind):
    largest = torch.stack([part(p.grad).abs().max() for p in parameters]).max()
    if world > 1:
        dist.all_reduce(largest, dist.ReduceOp.MAX)
    return largest ** (1.0 / kind) if "--bug" in sys.argv and world > 1 else largest


def part(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


torch.manual_seed(8)
model = Ranking().to(KIND)
if world > 1:
    dist.init_process_group("gloo")
    fully_shard(model)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
tracer = ttrace.attach(model, optimizer=optimizer)
ids, clicked = torch.randint(30, (16, 3, 4)), torch.randint(2, (16,)).to(KIND)
with tracer.step(0):
    scores = model(ids.chunk(world)[rank])
    nn.functional.binary_cross_entropy_with_logits(scores, clicked.chunk(world)[rank]).backward()
    norm = total(list(model.parameters()), math.inf)
    for parameter in model.parameters():
        part(parameter.grad).mul_(torch.clamp(0.02 / norm, max=1.0))
    optimizer.step()
print(f"rank {rank}: norm {norm.item():.6f}", flush=True)
if world > 1:
    dist.destroy_process_group()
