"""A model of a BF16 checkpoint under autocast. --stored names what its parameters are kept in, --asks what the
program asks for; without it, it does not ask."""

from __future__ import annotations

import argparse

import torch
import ttrace
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--stored", default="float32")
parser.add_argument("--asks")
ARGS = parser.parse_args()
stored = getattr(torch, ARGS.stored)
if ARGS.asks:
    asked = ttrace.dtype(ARGS.asks)
    stored = asked if ARGS.asks == ARGS.stored else stored
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 4)).to(torch.bfloat16).to(stored)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tracer = ttrace.attach(model, optimizer=optimizer)
x = torch.randn(8, 12).bfloat16().to(stored)
with tracer.step(0):
    with torch.autocast("cpu", torch.bfloat16):
        y = model(x)
    y.float().square().mean().backward()
    optimizer.step()
