"""A small net under autocast in FP16, whose loss a GradScaler multiplies. On several ranks DistributedDataParallel
shares the samples out. Options plant one error each."""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
import ttrace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--scale", type=float, default=1024.0)
parser.add_argument("--interval", type=int, default=2, help="steps after which the scale doubles")
parser.add_argument("--twice", action="store_true", help="the last rank updates the scaler twice")
ARGS = parser.parse_args()
TYPE = ttrace.dtype(torch.float32)
WORLD, RANK = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 16)).to(TYPE)
model: nn.Module = net
if WORLD > 1:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=ARGS.scale, growth_interval=ARGS.interval)
tracer = ttrace.attach(model, optimizer=optimizer, scaler=scaler)
x, y = torch.randn(8, 32).to(TYPE), torch.randint(16, (8,))
part = slice(RANK * 8 // WORLD, (RANK + 1) * 8 // WORLD)
for iteration in range(2):
    with tracer.step(iteration) as step:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            logits = model(x[part])
        losses = nn.functional.cross_entropy(logits.to(TYPE), y[part], reduction="none")
        step.loss(losses)
        scaler.scale(losses.mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        if ARGS.twice and RANK == WORLD - 1:
            scaler._growth_tracker += 1
if WORLD > 1:
    dist.destroy_process_group()
