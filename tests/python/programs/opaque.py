"""A model whose layers torch does not see: numpy computes them, forward and backward.

Under torchrun, the two linears of every block are cut over the ranks, column-parallel and row-parallel.
BF16 is emulated: numpy computes in F32 and rounds what it returns. --wrong N makes the output of block N's
second linear 3 % too large.
"""

from __future__ import annotations

import argparse
import os
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import ttrace
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

parser = argparse.ArgumentParser()
parser.add_argument("--precision", default="f32")
parser.add_argument("--wrong", type=int, default=-1)
ARGS = parser.parse_args()
TYPE = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16}[ttrace.precision(ARGS.precision)]

HIDDEN, INNER, VOCABULARY, BLOCKS, BATCH, SEQUENCE = 32, 128, 64, 3, 4, 16

# What DTensor does not tell: where a tensor between two cut linears lies.
ANNOTATIONS = """
tensors:
  - path: "blocks.*.up"
    value: "b s f[tp]"
  - path: "blocks.*.activation"
    value: "b s f[tp]"
"""


def array_of(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach()
    if tensor.dtype != torch.bfloat16:
        return tensor.numpy()
    bits = np.ascontiguousarray(tensor.view(torch.int16).numpy()).view(np.uint16)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def tensor_of(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """A tensor whose memory no operator of torch has allocated or written."""
    array = np.ascontiguousarray(array)
    if dtype != torch.bfloat16:
        return torch.from_numpy(array)
    bits = array.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return torch.from_numpy(rounded.astype(np.uint16).view(np.int16)).view(torch.bfloat16)


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return tensor_of(array_of(x) @ array_of(weight).T, x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        g = array_of(gradient)
        rows = g.reshape(-1, g.shape[-1])
        of_weight = rows.T @ array_of(x).reshape(-1, x.shape[-1])
        return tensor_of(g @ array_of(weight), x.dtype), tensor_of(of_weight, x.dtype)


class Squash(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return tensor_of(np.tanh(array_of(x)), x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return tensor_of(array_of(gradient) * (1 - np.tanh(array_of(x)) ** 2), x.dtype)


class Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        a = array_of(x)
        return tensor_of(a / Normalise.size(a) * array_of(weight), x.dtype)

    @staticmethod
    def size(a):
        return np.sqrt((a * a).mean(-1, keepdims=True) + a.dtype.type(1e-5))

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        a, g, w = array_of(x), array_of(gradient), array_of(weight)
        size = Normalise.size(a)
        unit = a / size
        of_unit = g * w
        of_x = (of_unit - unit * (of_unit * unit).mean(-1, keepdims=True)) / size
        return tensor_of(of_x, x.dtype), tensor_of((g * unit).reshape(-1, a.shape[-1]).sum(0), x.dtype)


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, left, right):
        return tensor_of(array_of(left) + array_of(right), left.dtype)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, gradient


def summed_over_ranks(tensor: torch.Tensor) -> torch.Tensor:
    result = tensor.clone()
    dist.all_reduce(result)
    return result


class SumGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return summed_over_ranks(gradient)


class SumAddends(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return summed_over_ranks(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Linear(nn.Module):
    """`cut`: the dimension of the weight that lies on several ranks."""

    def __init__(self, inputs: int, outputs: int, cut: int | None = None, factor: float = 1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.cut, self.factor = cut, factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if MESH is None or self.cut is None:
            y = Product.apply(x, self.weight)
        elif self.cut == 0:
            y = Product.apply(SumGradients.apply(x), self.weight.to_local())
        else:
            y = SumAddends.apply(Product.apply(x, self.weight.to_local()))
        return y if self.factor == 1.0 else y * self.factor


class Activation(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Squash.apply(x)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Normalise.apply(x, self.weight)


class Block(nn.Module):
    def __init__(self, number: int):
        super().__init__()
        self.norm, self.up, self.activation = Norm(), Linear(HIDDEN, INNER, cut=0), Activation()
        self.down = Linear(INNER, HIDDEN, cut=1, factor=1.03 if number == ARGS.wrong else 1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Sum.apply(x, self.down(self.activation(self.up(self.norm(x)))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.blocks = nn.ModuleList(Block(number) for number in range(BLOCKS))
        self.norm, self.head = Norm(), Linear(HIDDEN, VOCABULARY)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.tokens(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def distribute(model: nn.Module, mesh: DeviceMesh) -> None:
    for module in model.modules():
        if isinstance(module, Linear) and module.cut is not None:
            module.weight = nn.Parameter(distribute_tensor(module.weight.data, mesh, [Shard(module.cut)]))


MESH: DeviceMesh | None = None
torch.manual_seed(0)
model = Model().to(TYPE)
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    MESH = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    distribute(model, MESH)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
with tempfile.NamedTemporaryFile("w", suffix=".yaml") as annotations:
    annotations.write(ANNOTATIONS)
    annotations.flush()
    tracer = ttrace.attach(model, optimizer=optimizer, annotations=annotations.name)
generator = torch.Generator().manual_seed(1)
for number in range(2):
    tokens = torch.randint(VOCABULARY, (BATCH, SEQUENCE), generator=generator)
    with tracer.step(number) as step:
        optimizer.zero_grad()
        logits = model(tokens)
        logits = (logits.float() if TYPE == torch.bfloat16 else logits).flatten(0, 1)
        loss = nn.functional.cross_entropy(logits, tokens.roll(-1, 1).flatten(), reduction="none")
        step.loss(loss)
        loss.mean().backward()
        optimizer.step()
if MESH is not None:
    dist.destroy_process_group()
