"""A loop of the program's own around what Lightning's Fabric returns, in one process or under DDP. --wrong: the loss is
multiplied by the ranks."""

from __future__ import annotations

import os
import sys

import torch
import ttrace
from lightning.fabric import Fabric
from lightning.fabric.strategies import DDPStrategy
from torch import nn

PRECISION = {"f32": "32-true", "f64": "64-true"}[ttrace.precision("f32")]
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))

strategy = DDPStrategy(process_group_backend="gloo") if RANKS > 1 else "auto"
fabric = Fabric(accelerator="cpu", devices=RANKS, precision=PRECISION, strategy=strategy)
fabric.launch()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 3))
model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
tracer = ttrace.attach(model, optimizer=optimizer)
for step in range(2):
    x, labels = torch.randn(8, 8).chunk(RANKS)[RANK], (torch.arange(8) % 3).chunk(RANKS)[RANK]
    with tracer.step(step):
        loss = nn.functional.cross_entropy(model(x), labels)
        fabric.backward(loss * RANKS if "--wrong" in sys.argv else loss)
        optimizer.step()
        optimizer.zero_grad()
