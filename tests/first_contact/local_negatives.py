# Lightning-Universe/lightning-bolts#179 (2020-09-03): under DDP the NT-Xent loss compares a rank's views with each other alone.
# Right: the views of all ranks are gathered, with their gradients.
import os
import sys
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as collective
from torch import nn
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def nt_xent(one, two, everywhere):
    batch = len(one)
    others_one, others_two = (one, two) if not everywhere else (
        torch.cat(collective.all_gather(one)), torch.cat(collective.all_gather(two)))
    first = RANK * batch if everywhere else 0
    targets = torch.arange(first, first + batch)
    other = torch.cat([others_two, others_one]), torch.cat([others_one, others_two])
    loss = 0.0
    for own, against in zip((one, two), other):
        logits = own @ against.T / 0.2
        logits[torch.arange(batch), targets + len(others_one)] = -1e9  # with itself
        loss = loss + nn.functional.cross_entropy(logits, targets) / 2
    return loss


torch.manual_seed(13)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 12)).to(KIND)
if RANKS > 1:
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tracer = ttrace.attach(model, optimizer=optimizer)
views = torch.randn(8, 2, 3, 8, 8, dtype=KIND).chunk(RANKS)[RANK]
with tracer.step(0):
    vectors = nn.functional.normalize(model(views.flatten(0, 1)), dim=-1).unflatten(0, (-1, 2))
    loss = nt_xent(vectors[:, 0], vectors[:, 1], RANKS > 1 and "--bug" not in sys.argv)
    loss.backward()
    print(f"rank {RANK}: {sum(p.grad.square().sum() for p in model.parameters()).sqrt().item():.6f}", flush=True)
    optimizer.step()
if RANKS > 1:
    dist.destroy_process_group()
