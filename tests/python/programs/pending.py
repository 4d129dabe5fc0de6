"""One step of a model whose modules return DTensors with pending averages, maxima, norms and masked sums."""

import os

import torch
import torch.distributed as dist
import ttrace
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor


def whole(x):
    return x.redistribute(placements=[Replicate()]) if isinstance(x, DTensor) else x


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(0)


class Largest(nn.Module):
    def forward(self, x):
        return x.amax(0)


class Norm(nn.Module):
    def forward(self, x):
        return torch.linalg.vector_norm(x, dim=0)


class Total(nn.Module):
    def forward(self, x):
        return x.sum(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(12, 6)
        self.linear = nn.Linear(6, 8)
        self.mean, self.largest, self.norm, self.total = Mean(), Largest(), Norm(), Total()

    def forward(self, words, x):
        y = self.linear(x)
        parts = (self.words(words), self.mean(y), self.largest(y), self.norm(y), self.total(y))
        return torch.stack([whole(part).square().sum() for part in parts]).sum()


torch.manual_seed(1)
model = Model().to({"f32": torch.float32, "f64": torch.float64}[ttrace.precision("f32")])
words, x = torch.randint(12, (10,)), torch.randn(4, 6, dtype=model.linear.weight.dtype)
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    words, x = distribute_tensor(words, mesh, [Replicate()]), distribute_tensor(x, mesh, [Shard(0)])
    for name, parameter in list(model.named_parameters()):
        owner, _, last = name.rpartition(".")
        placed = distribute_tensor(parameter.detach(), mesh, [Shard(0) if owner == "words" else Replicate()])
        setattr(model.get_submodule(owner), last, nn.Parameter(placed))
optimizer = torch.optim.AdamW(model.parameters())
tracer = ttrace.attach(model, optimizer=optimizer)
with tracer.step(0):
    model(words, x).backward()
    optimizer.step()
if "RANK" in os.environ:
    dist.destroy_process_group()
