# ByteDance-Seed/VeOmni#1115 (2026-08-24): with sequences cut over all ranks, DDP gets the data-parallel group, which has one rank
# then, so that its all-reduce does nothing. Right: DDP gets the group of all ranks that have parts of the data.
import os
import sys
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


torch.manual_seed(5)
model = nn.Sequential(nn.Embedding(50, 16), Block(16), Block(16), nn.Linear(16, 50)).to(KIND)
axes = None
if world > 1:
    dist.init_process_group("gloo")
    alone = [dist.new_group([r]) for r in range(world)]
    model = DDP(model, process_group=alone[rank] if "--bug" in sys.argv else None)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tracer = ttrace.attach(model, optimizer=optimizer, batch_dim=1)
text = torch.randint(50, (4, 17))
inputs, labels = text[:, :-1].chunk(world, 1)[rank], text[:, 1:].chunk(world, 1)[rank]
with tracer.step(0):
    loss = F.cross_entropy(model(inputs).flatten(0, 1), labels.flatten())
    loss.backward()
    print(rank, sum(p.grad.pow(2).sum() for p in model.parameters()).sqrt().item(), flush=True)
    optimizer.step()
if world > 1:
    dist.destroy_process_group()
