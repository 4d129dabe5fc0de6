# dingo-gw/dingo#358 (2026-08-25): gradients are summed over accumulated batches, and the loss is not divided by their number.
# The reference reads the same rows as one batch. Right: the loss is divided.
import os
import sys
import torch
from torch import distributed as dist, nn
import ttrace

dtype = torch.float64 if ttrace.precision("f32") == "f64" else torch.float32
world = int(os.environ.get("WORLD_SIZE", "1"))
rank = int(os.environ.get("RANK", "0"))
updates = 3 if world > 1 else 1
torch.manual_seed(11)
flow = nn.Sequential(nn.Linear(6, 40), nn.SiLU(), nn.Linear(40, 40), nn.SiLU(), nn.Linear(40, 2)).to(dtype)
model = flow
if world > 1:
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(flow)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
tracer = ttrace.attach(model, optimizer=optimizer)
data, target = torch.randn(12, 6, dtype=dtype), torch.randn(12, 2, dtype=dtype)
with tracer.step(0):
    for part in range(updates):
        mine = torch.arange(12).chunk(updates)[part].chunk(world)[rank]
        loss = (model(data[mine]) - target[mine]).square().mean()
        if "--bug" not in sys.argv:
            loss = loss / updates
        loss.backward()
    print(rank, torch.stack([p.grad.norm() for p in flow.parameters()]).norm().item(), flush=True)
    optimizer.step()
if world > 1:
    dist.destroy_process_group()
