"""A small model in loops of several kinds. Under torchrun it is in DDP, and ranks share the samples.

--scale N multiplies the loss by N in a GradScaler; --undeclared does not hand that to TTrace, and --kept does not take it
out of the gradients again. --follow lets steps
follow the optimizer, in place of `tracer.step`. --forward only goes forward, in inference mode. Each step has two
micro-batches, and the model is evaluated between steps.
"""

from __future__ import annotations

import argparse
import contextlib
import os

import torch
import ttrace
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--scale", type=float, default=1.0)
parser.add_argument("--undeclared", action="store_true")
parser.add_argument("--kept", action="store_true")
parser.add_argument("--follow", action="store_true")
parser.add_argument("--forward", action="store_true")
ARGS = parser.parse_args()
TYPE = {"f32": torch.float32, "f64": torch.float64}[ttrace.precision("f32")]
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Wrapped(nn.Module):
    """It has a child of the name that TTrace gives the whole."""

    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))

    def forward(self, x):
        return self.model(x) * 2


def batches(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(2, 8, 8, generator=generator).to(TYPE).chunk(RANKS, 1)[RANK]


def backward_of(losses: torch.Tensor) -> None:
    scaler.scale(losses.mean() / 2).backward()


def evaluate() -> None:
    with torch.no_grad():
        model(batches(99)[0])


torch.manual_seed(1)
model = Wrapped().to(TYPE)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
if RANKS > 1:
    torch.distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(model)
scaler = torch.amp.GradScaler("cpu", init_scale=ARGS.scale)
options = {} if ARGS.undeclared else {"scaler": scaler}
if ARGS.forward:
    tracer = ttrace.attach(model)
else:
    steps = "optimizer" if ARGS.follow else "program"
    tracer = ttrace.attach(model, optimizer=optimizer, steps=steps, **options)
for step in range(2):
    with contextlib.nullcontext() if ARGS.follow else tracer.step(step):
        for batch in batches(step):
            with torch.inference_mode(ARGS.forward):
                losses = model(batch).square().mean(-1)
            if not ARGS.forward:
                tracer.loss(losses)
                backward_of(losses)
        if not ARGS.forward:
            if ARGS.kept:
                optimizer.step()
            else:
                scaler.step(optimizer)
                scaler.update()
            optimizer.zero_grad()
    if not ARGS.forward:
        evaluate()
