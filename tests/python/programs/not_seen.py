"""A small network whose verdict covers less than it seems: without an optimizer, of NaN, or of other data in each run."""

from __future__ import annotations

import argparse

import torch
import ttrace

parser = argparse.ArgumentParser()
parser.add_argument("--optimizer", action="store_true")
parser.add_argument("--nan", action="store_true", help="all inputs are NaN")
parser.add_argument("--unseeded", action="store_true", help="inputs are drawn anew in each run")
parser.add_argument("--autocast", action="store_true")
parser.add_argument("--wrong", type=float, default=1.0, help="a factor of the loss")
args = parser.parse_args()

torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
tracer = ttrace.attach(model, optimizer=optimizer if args.optimizer else None)
tracer.not_seen("state", "this program keeps a counter of its own")
if args.unseeded:
    torch.seed()
inputs = torch.randn(64, 16) * (float("nan") if args.nan else 1.0)
with tracer.step(0) as step:
    with torch.autocast("cpu", torch.bfloat16, enabled=args.autocast):
        outputs = model(inputs)
    loss = outputs.float().square().mean() * args.wrong
    step.loss(loss)
    loss.backward()
    optimizer.step()
