# pytorch/torchtitan#4598 (2026-09-11): a replica that joins restores the scheduler and not the rate in the optimizer's groups, so that
# replicas with equal gradients take steps of other lengths. Right: all have the schedule's rate.
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
torch.manual_seed(31)
model = nn.Sequential(nn.Linear(9, 36), nn.ELU(), nn.Linear(36, 36), nn.ELU(), nn.Linear(36, 3)).to(KIND)
if ranks > 1:
    dist.init_process_group("gloo")
    model = DDP(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10))
state = {**schedule.state_dict(), "last_epoch": 4, "_step_count": 5, "_last_lr": [5e-4]}
schedule.load_state_dict(state)
for group in optimizer.param_groups:
    group["lr"] = 1e-4 if rank == 1 and "--bug" in sys.argv else 5e-4
tracer = ttrace.attach(model, optimizer=optimizer)
x, y = torch.randn(8, 9, dtype=KIND), torch.randn(8, 3, dtype=KIND)
with tracer.step(0):
    (model(x.chunk(ranks)[rank]) - y.chunk(ranks)[rank]).square().mean().backward()
    optimizer.step()
    schedule.step()
print(rank, optimizer.param_groups[0]["lr"], sum(p.sum() for p in model.parameters()).item(), flush=True)
if ranks > 1:
    dist.destroy_process_group()
