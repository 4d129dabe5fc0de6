"""One step of a block under selective checkpointing, which keeps the result of a reduce-scatter that nobody has waited for
when a module returns it."""

import os
from functools import partial

import torch
import torch.distributed as dist
import ttrace
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts


class Row(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 8))

    def forward(self, x):
        y = x @ self.weight
        return y.redistribute(placements=[Shard(0)], async_op=True) if isinstance(y, DTensor) else y


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.row, self.head = Row(), nn.Linear(8, 8)

    def forward(self, x):
        return self.head(self.row(x).tanh())


torch.manual_seed(1)
block = Block().to({"f32": torch.float32, "f64": torch.float64}[ttrace.precision("f32")])
x = torch.randn(4, 6, dtype=block.row.weight.dtype)
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    x = distribute_tensor(x, mesh, [Shard(1)])
    for name, parameter in list(block.named_parameters()):
        owner, _, last = name.rpartition(".")
        placed = distribute_tensor(parameter.detach(), mesh, [Shard(0) if owner == "row" else Replicate()])
        setattr(block.get_submodule(owner), last, nn.Parameter(placed))
optimizer = torch.optim.AdamW(block.parameters())
tracer = ttrace.attach(block, optimizer=optimizer)
kept = [torch.ops._c10d_functional.reduce_scatter_tensor.default]
with tracer.step(0):
    y = checkpoint(block, x, use_reentrant=False, context_fn=partial(create_selective_checkpoint_contexts, kept))
    y.square().sum().backward()
    optimizer.step()
if "RANK" in os.environ:
    dist.destroy_process_group()
