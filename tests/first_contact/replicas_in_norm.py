# ByteDance-Seed/VeOmni#862 (2026-06-24): with hybrid sharding the squares of the shards are summed over all ranks, so that every shard
# counts once for each of its replicas, and clipping is stricter than it should be. Right: they are summed over the ranks of one replica.
# Candidate: torchrun --nproc-per-node 4.
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Gated(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        y = self.norm(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Energy(nn.Module):
    """Of molecules: a sum over atoms."""

    def __init__(self, width=20):
        super().__init__()
        self.kinds, self.places = nn.Embedding(6, width), nn.Linear(3, width)
        self.layers = nn.ModuleList([Gated(width), Gated(width), Gated(width)])
        self.energy = nn.Linear(width, 1)

    def forward(self, kinds, places):
        x = self.kinds(kinds) + self.places(places)
        for layer in self.layers:
            x = layer(x)
        return self.energy(x).sum((1, 2))


def clip(model, mesh, limit):
    gradients = [p.grad.to_local() if world > 1 else p.grad for p in model.parameters()]
    squares = torch.stack([g.square().sum() for g in gradients if g.numel()]).sum()
    if world > 1:
        group = None if "--bug" in sys.argv else mesh["shard"].get_group()
        dist.all_reduce(squares, group=group)
    norm = squares.sqrt()
    if norm > limit:
        for gradient in gradients:
            gradient *= limit / norm
    return norm


def train():
    torch.manual_seed(84)
    model, mesh = Energy().to(KIND), None
    if world > 1:
        dist.init_process_group("gloo")
        mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.95)
    tracer = ttrace.attach(model, optimizer=optimizer)
    for number in range(2):
        g = torch.Generator().manual_seed(number)
        kinds, places = torch.randint(6, (8, 7), generator=g), torch.randn(8, 7, 3, generator=g).to(KIND)
        energies = torch.randn(8, generator=g).to(KIND)
        kinds, places, energies = (part.chunk(world)[rank] for part in (kinds, places, energies))
        with tracer.step(number):
            loss = nn.functional.mse_loss(model(kinds, places), energies)
            loss.backward()
            norm = clip(model, mesh, 1.0)
            optimizer.step()
            optimizer.zero_grad()
        print(f"rank {rank} step {number}: loss {loss.item():.6f} norm {norm.item():.6f}", flush=True)
    if world > 1:
        dist.destroy_process_group()


train()
