"""Linears that multiply in emulated FP8, each operand scaled by the largest magnitude of what this rank has of it, as
torchao's tensorwise scaling does. The first linear is frozen."""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
import ttrace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH, WIDTH = 32, 32

parser = argparse.ArgumentParser()
parser.add_argument("--trained", action="store_true", help="the first linear is trained as well")
parser.add_argument("--factor", type=float, default=1.0, help="of what the second linear returns")
ARGS = parser.parse_args()
RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def rounded(values: torch.Tensor, codes: torch.dtype) -> torch.Tensor:
    """To FP8 and back."""
    scale = torch.finfo(codes).max / values.abs().max()
    return (values * scale).to(codes).to(values.dtype) / scale


class Fp8Product(torch.autograd.Function):
    @staticmethod
    def forward(context, inputs, weight):
        inputs, weight = rounded(inputs, torch.float8_e4m3fn), rounded(weight, torch.float8_e4m3fn)
        context.save_for_backward(inputs, weight)
        return inputs @ weight.t()

    @staticmethod
    def backward(context, gradient):
        inputs, weight = context.saved_tensors
        gradient = rounded(gradient, torch.float8_e5m2)
        return gradient @ weight, gradient.t() @ inputs


class Fp8Linear(nn.Linear):
    def forward(self, inputs):
        return Fp8Product.apply(inputs, self.weight)


class Scaled(Fp8Linear):
    def forward(self, inputs):
        return ARGS.factor * super().forward(inputs)


dtype = getattr(torch, {"f32": "float32", "f64": "float64"}[ttrace.precision("f32")])
torch.manual_seed(0)
layers = [Fp8Linear(WIDTH, WIDTH, bias=False), nn.GELU(), Scaled(WIDTH, 2 * WIDTH, bias=False), nn.GELU()]
layers += [Fp8Linear(2 * WIDTH, WIDTH, bias=False), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 16)]
model = nn.Sequential(*layers).to(dtype)
model[0].weight.requires_grad_(ARGS.trained)
if WORLD > 1:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad], lr=1e-3)
tracer = ttrace.attach(model, optimizer=optimizer)
torch.manual_seed(1)
inputs, labels = torch.randn(BATCH, WIDTH).to(dtype), torch.randint(16, (BATCH,))
with tracer.step(0) as traced:
    losses = nn.functional.cross_entropy(model(inputs.chunk(WORLD)[RANK]), labels.chunk(WORLD)[RANK], reduction="none")
    traced.loss(losses)
    losses.mean().backward()
    optimizer.step()
if WORLD > 1:
    dist.destroy_process_group()
