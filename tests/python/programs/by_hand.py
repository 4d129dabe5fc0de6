"""A model whose parallelism is code of its own: functions of autograd that call all-reduce, and layers that nobody
knows. --tp and --dp divide the ranks; --wrong NAME plants an error."""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
import ttrace
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--precision", default="f32")
parser.add_argument("--dp", type=int, default=1)
parser.add_argument("--tp", type=int, default=1)
parser.add_argument("--axes", type=int, help="declare so many data-parallel ranks")
parser.add_argument("--wrong", choices=["copy-not-reduced", "row-not-reduced", "gradients-not-reduced"])
ARGS = parser.parse_args()
TYPE = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16}[ttrace.precision(ARGS.precision)]
RANK = int(os.environ.get("RANK", 0))
DP_RANK, TP_RANK = divmod(RANK, ARGS.tp)
IS_PARALLEL = "RANK" in os.environ
if IS_PARALLEL:
    dist.init_process_group("gloo")
    mesh = dist.device_mesh.init_device_mesh("cpu", (ARGS.dp, ARGS.tp), mesh_dim_names=("dp", "tp"))


def summed(x: torch.Tensor, axis: str, is_wrong: bool = False) -> torch.Tensor:
    x = x.clone()
    if IS_PARALLEL and not is_wrong:
        dist.all_reduce(x, group=mesh[axis].get_group())
    return x


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        return summed(gradient, "tp", ARGS.wrong == "copy-not-reduced")


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return summed(x, "tp", ARGS.wrong == "row-not-reduced")

    @staticmethod
    def backward(context, gradient):
        return gradient


def part(weight: torch.Tensor, dim: int) -> nn.Parameter:
    return nn.Parameter(weight.chunk(ARGS.tp, dim)[TP_RANK].clone())


class Widening(nn.Module):
    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.kernel = part(torch.randn(outputs, inputs) * inputs**-0.5, 0)

    def forward(self, x):
        return Copy.apply(x) @ self.kernel.T


class Narrowing(nn.Module):
    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.kernel = part(torch.randn(outputs, inputs) * inputs**-0.5, 1)
        self.offset = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return Sum.apply(x @ self.kernel.T) + self.offset


class Block(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.norm, self.activation = nn.LayerNorm(hidden), nn.GELU()
        self.up, self.down = Widening(hidden, 4 * hidden), Narrowing(4 * hidden, hidden)

    def forward(self, x):
        return x + self.down(self.activation(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.head = nn.Embedding(64, 32), nn.Linear(32, 64)
        self.blocks = nn.ModuleList(Block(32) for _ in range(3))

    def forward(self, tokens):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
model = Model().to(TYPE)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
axes = {"dp": ARGS.axes or ARGS.dp, "tp": ARGS.tp} if ARGS.dp > 1 else None  # of ranks that are all tensor-parallel nothing needs to be said
tracer = ttrace.attach(model, optimizer=optimizer, axes=axes)
generator = torch.Generator().manual_seed(1)
for number in range(2):
    tokens, targets = torch.randint(64, (2, 8, 16), generator=generator)
    tokens, targets = tokens.chunk(ARGS.dp)[DP_RANK], targets.chunk(ARGS.dp)[DP_RANK]
    with tracer.step(number) as step:
        losses = nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), targets.flatten(), reduction="none")
        step.loss(losses)
        losses.mean().backward()
        for parameter in model.parameters():
            parameter.grad = summed(parameter.grad, "dp", ARGS.wrong == "gradients-not-reduced") / ARGS.dp
        optimizer.step()
        optimizer.zero_grad()
if IS_PARALLEL:
    dist.destroy_process_group()
