"""A model of which one operator adds up in an order that every process draws for itself, as atomics do.

Under torchrun it is tensor-parallel: `up` and `down` are cut, everything else is computed by every rank, so that
the ranks' copies of what `mix` returns differ in the last place. --ordered adds up in a fixed order. --recompute
computes `mix` again in backward. --products is torch's precision of F32 products: with medium, oneDNN rounds their
operands to BF16 where the processor can. --wrong scales the output of `down` by 1.05.
"""

from __future__ import annotations

import argparse
import os
import random

import torch
import ttrace
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("--ordered", action="store_true")
parser.add_argument("--recompute", action="store_true")
parser.add_argument("--products", default="highest")
parser.add_argument("--wrong", action="store_true")
ARGS = parser.parse_args()
TYPE = {"f32": torch.float32, "f64": torch.float64}[ttrace.precision("f32")]
WIDTH = 32


class Mix(nn.Module):
    """The sum of 16 rotations of its input, each scaled."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(16, WIDTH))

    def forward(self, x):
        order = list(range(16))
        if not ARGS.ordered:
            random.SystemRandom().shuffle(order)
        parts = [self.scale[index] * x.roll(index, dims=-1) for index in range(16)]
        total = torch.zeros_like(x)
        for index in order:
            total = total + parts[index]
        return total / 4


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.mix = nn.Linear(WIDTH, WIDTH), Mix()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x):
        x = self.first(x)
        x = x + (checkpoint(self.mix, x, use_reentrant=True) if ARGS.recompute else self.mix(x))
        y = self.down(torch.nn.functional.gelu(self.up(x)))
        return self.head(x + y)


def main():
    torch.set_float32_matmul_precision(ARGS.products)
    torch.manual_seed(3)
    model = Model().to(TYPE)
    if ARGS.wrong:
        model.down.register_forward_hook(lambda module, inputs, output: output * 1.05)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1:
        torch.distributed.init_process_group("gloo")
        mesh = torch.distributed.init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
        parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tracer = ttrace.attach(model, optimizer=optimizer)
    for step in range(2):
        with tracer.step(step) as traced:
            optimizer.zero_grad()
            x = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(step)).to(TYPE)
            losses = model(x).square().mean(-1)
            traced.loss(losses)
            losses.mean().backward()
            optimizer.step()


if __name__ == "__main__":
    main()
