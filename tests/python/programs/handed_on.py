"""One step of a block whose value is gathered for one of its two consumers, on one to two ranks.

The gather changes nothing on one device, so that it hands on its own input there. With --bug, its consumer's
gradient is halved.
"""

import os
import sys

import torch
import torch.distributed as dist
import ttrace
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor


class Gather(nn.Module):
    def forward(self, x):
        return x.redistribute(placements=[Replicate()]) if isinstance(x, DTensor) else x


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        return gradient * 0.5


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.gather, self.second = nn.Linear(8, 8), Gather(), nn.Linear(8, 8)

    def forward(self, x):
        y = self.first(x)
        gathered = self.gather(y)
        if "--bug" in sys.argv and isinstance(gathered, DTensor):
            gathered = DTensor.from_local(Halved.apply(gathered.to_local()), gathered.device_mesh, gathered.placements)
        return y + self.second(gathered)


torch.manual_seed(1)
model = Block().to({"f32": torch.float32, "f64": torch.float64}[ttrace.precision("f32")])
x = torch.randn(4, 8, dtype=next(model.parameters()).dtype)
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    for name, parameter in list(model.named_parameters()):
        owner, _, last = name.rpartition(".")
        setattr(model.get_submodule(owner), last, nn.Parameter(distribute_tensor(parameter.detach(), mesh, [Replicate()])))
    x = distribute_tensor(x, mesh, [Shard(0)])
optimizer = torch.optim.AdamW(model.parameters())
tracer = ttrace.attach(model, optimizer=optimizer)
with tracer.step(0):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
if "RANK" in os.environ:
    dist.destroy_process_group()
