# karpathy/build-nanogpt#30 (2024-06-17): DDP's flag require_backward_grad_sync is set only for the last backward, after that
# micro-batch's forward, so that no gradient is reduced. Right: the flag is set before the forward.
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
if ranks > 1:
    dist.init_process_group("gloo")
torch.manual_seed(1)
model = nn.Sequential(nn.Embedding(64, 24), nn.Linear(24, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 64)).to(KIND)
if ranks > 1:
    model = DDP(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95))
tracer = ttrace.attach(model, optimizer=optimizer)
text = torch.randint(64, (2, 8, 17))  # two micro-batches of eight rows
with tracer.step(0):
    for number, rows in enumerate(text):
        rows = rows.chunk(ranks)[rank]
        last = number == len(text) - 1
        if ranks > 1 and "--bug" not in sys.argv:
            model.require_backward_grad_sync = last
        elif ranks > 1:
            model.require_backward_grad_sync = False
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten()) / len(text)
        if ranks > 1:
            model.require_backward_grad_sync = last
        loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
print(f"rank {rank}: norm {norm.item():.6f}", flush=True)
if ranks > 1:
    dist.destroy_process_group()
