"""A model whose training step is a method of it, as in Lightning: DDP calls the step through the model's own forward.

--calls forward: the step calls the model, whose forward runs within its forward under DDP. parts: the step calls its
modules. --nested does in one process what DDP does. --accumulate: two micro-batches. --wrong: no all-reduce. --deal: ranks
have every RANKS-th sample. --tokens: samples are integers.
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
import ttrace
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--calls", choices=["forward", "parts"], default="forward")
parser.add_argument("--nested", action="store_true")
parser.add_argument("--accumulate", action="store_true")
parser.add_argument("--wrong", action="store_true")
parser.add_argument("--deal", action="store_true")
parser.add_argument("--tokens", action="store_true")
ARGS = parser.parse_args()
TYPE = {"f32": torch.float32, "f64": torch.float64}[ttrace.precision("f32")]
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Task(nn.Module):
    def __init__(self):
        super().__init__()
        first = nn.Embedding(64, 32) if ARGS.tokens else nn.Linear(8, 32)
        self.net = nn.Sequential(first, nn.Tanh(), nn.Linear(32, 3))

    def training_step(self, batch):
        x, labels = batch
        compute = self if ARGS.calls == "forward" else self.net
        return nn.functional.cross_entropy(compute(x if ARGS.tokens else x / 2), labels, reduction="none")

    def forward(self, given, trains=False):
        return self.training_step(given) if trains else self.net(given)


torch.manual_seed(0)
task = Task().to(TYPE)
model = task
if RANKS > 1:
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(task)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
tracer = ttrace.attach(model, optimizer=optimizer)
for step in range(2):
    count = 2 if ARGS.accumulate else 1
    samples = torch.randint(64, (count, 8)) if ARGS.tokens else torch.randn(count, 8, 8).to(TYPE)
    batches = samples, torch.randint(3, (count, 8))
    with tracer.step(step):
        for x, labels in zip(*batches):
            batch = [t[RANK::RANKS] if ARGS.deal else t.chunk(RANKS)[RANK] for t in (x, labels)]
            called = task if ARGS.wrong else model
            losses = called(batch, trains=True) if RANKS > 1 or ARGS.nested else task.training_step(batch)
            (losses.mean() / count).backward()
        optimizer.step()
        optimizer.zero_grad()
if RANKS > 1:
    dist.destroy_process_group()
