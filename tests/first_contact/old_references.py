# pytorch/pytorch#149205 (2025-03-14): a model in FSDP2 runs once before its optimizer is made. After a forward the outermost module stays
# gathered, so that model.parameters() has its whole tensors, which nobody computes with later, and the optimizer never updates that
# module. Right: the model is sharded again before the optimizer is made.
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.EmbeddingBag(50, 16, mode="mean")
        self.tower = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 16))
        self.bias = nn.Parameter(torch.zeros(1))
        self.score = nn.Linear(16, 1)

    def forward(self, bags):
        x = self.items(bags)
        return self.score(x + self.tower(x))[:, 0] + self.bias


torch.manual_seed(55)
model = Ranker().to(KIND)
bags, better = torch.randint(50, (12, 6)), torch.randint(50, (12, 6))
if RANKS > 1:
    dist.init_process_group("gloo")
    fully_shard(model.tower)
    fully_shard(model)
with torch.no_grad():
    before = (model(better) - model(bags)).mean()  # for the log
if RANKS > 1 and "--bug" not in sys.argv:
    model.reshard()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
tracer = ttrace.attach(model, optimizer=optimizer)
for number in range(2):
    with tracer.step(number):
        margin = model(better.chunk(RANKS)[RANK]) - model(bags.chunk(RANKS)[RANK])
        loss = -nn.functional.logsigmoid(margin).mean()
        loss.backward()
        optimizer.step()
        model.zero_grad()
    print(f"rank {RANK} step {number}: before {before.item():.6f} loss {loss.item():.6f}", flush=True)
if RANKS > 1:
    dist.destroy_process_group()
