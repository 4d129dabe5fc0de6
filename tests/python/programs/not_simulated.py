"""Programs that only look as if one process simulated their ranks: with FSDP2 (fsdp), over a process group that is fake
without LocalTensorMode (fake), and on one rank (asked)."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
import ttrace
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

kind = sys.argv[1]
model = torch.nn.Linear(4, 4)
if kind == "fsdp":
    with ttrace.simulated(2):
        model = torch.nn.Linear(4, 4)
        fully_shard(model, mesh=init_device_mesh("cpu", (2,), mesh_dim_names=("dp",)))
        ttrace.attach(model)
if kind == "fake":
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    model.weight = torch.nn.Parameter(distribute_tensor(model.weight.detach(), mesh))
ttrace.attach(model)
