# NVIDIA-NeMo/Automodel#3883 (2026-09-14): on resume the scheduler writes the constructor's weight decay into the optimizer before the
# checkpoint's is restored, and the first update takes it. Right: the checkpoint's.
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Schedule:
    def __init__(self, optimizer, decay):
        self.optimizer, self.decay, self.steps = optimizer, decay, 0

    def step(self, increment):
        self.steps += increment
        for group in self.optimizer.param_groups:
            group["weight_decay"] = self.decay

    def load(self, state):
        if ranks > 1 and "--bug" in sys.argv:
            self.step(state["steps"])
            self.decay = state["decay"]
        else:
            self.decay = state["decay"]
            self.step(state["steps"])


torch.manual_seed(12)
model = nn.Sequential(nn.Embedding(60, 16), nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 60)).to(KIND)
if ranks > 1:
    dist.init_process_group("gloo")
    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
schedule = Schedule(optimizer, 0.1)
schedule.load({"steps": 40, "decay": 0.033})
tracer = ttrace.attach(model, optimizer=optimizer)
tokens = torch.randint(60, (8, 9))
with tracer.step(0):
    mine = tokens.chunk(ranks)[rank]
    nn.functional.cross_entropy(model(mine[:, :-1]).flatten(0, 1), mine[:, 1:].flatten()).backward()
    optimizer.step()
    schedule.step(1)
if ranks > 1:
    dist.destroy_process_group()
