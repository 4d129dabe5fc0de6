"""One step of three layers on one to two ranks; all tensors are DTensors, also on one rank.

With --bug, the second layer returns something else than the others do.
"""

import os
import sys

import torch
import torch.distributed as dist
import ttrace
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

if "RANK" in os.environ:
    dist.init_process_group("gloo")
else:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x):
        return torch.tanh(self.fc(self.norm(x)))


class Second(Layer):
    def forward(self, x):
        y = super().forward(x)
        return y + 0.02 * y.square()


torch.manual_seed(1)
layers = [Layer(), Second() if "--bug" in sys.argv else Layer(), Layer()]
model = nn.Sequential(*layers).to({"f32": torch.float32, "f64": torch.float64}[ttrace.precision("f32")])
x = torch.randn(4, 6, 8, dtype=next(model.parameters()).dtype)
for name, parameter in list(model.named_parameters()):
    owner, _, last = name.rpartition(".")
    placed = distribute_tensor(parameter.detach(), mesh, [Shard(0) if ".fc." in name else Replicate()])
    setattr(model.get_submodule(owner), last, nn.Parameter(placed))
x = distribute_tensor(x, mesh, [Replicate()])
optimizer = torch.optim.AdamW(model.parameters())
tracer = ttrace.attach(model, optimizer=optimizer)
with tracer.step(0) as step:
    y = model(x).redistribute(placements=[Replicate()]).to_local()
    step.loss(y.square().sum(-1))
    y.square().sum().backward()
    optimizer.step()
dist.destroy_process_group()
