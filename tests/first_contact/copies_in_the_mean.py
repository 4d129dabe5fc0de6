# facebookresearch/fairchem#1067 (2025-03-18): the ranks of a graph-parallel group share the atoms of the same systems, and each has the
# whole loss in the end. DDP takes the mean over all ranks, these copies included, though each adds a part of the gradients only, so that
# gradients are too small by the size of the group. Right: the backward of the last gather adds up the gradients of the copies. Two pairs of
# ranks. Candidate: torchrun --nproc-per-node 4.
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
GP = 2 if WORLD > 1 else 1
DP, PART, BATCH = WORLD // GP, RANK % GP, RANK // GP
if WORLD > 1:
    dist.init_process_group("gloo")
    group = [dist.new_group([GP * i, GP * i + 1]) for i in range(DP)][BATCH]


class Gather(torch.autograd.Function):
    """The atoms of all ranks of the group, along dimension 1."""

    @staticmethod
    def forward(ctx, x, summed):
        ctx.summed = summed
        parts = [torch.empty_like(x) for _ in range(GP)]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, 1)

    @staticmethod
    def backward(ctx, gradient):
        if ctx.summed:
            gradient = gradient.clone()
            dist.all_reduce(gradient, group=group)
        return gradient.chunk(GP, 1)[PART], None


def whole(x, summed=True):
    return Gather.apply(x, summed) if GP > 1 else x


class Interaction(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.send, self.receive, self.out = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, near):
        messages = near @ whole(self.send(x))
        return x + self.out(nn.functional.silu(self.receive(x) + messages))


class Potential(nn.Module):
    def __init__(self, width=18):
        super().__init__()
        self.atoms = nn.Embedding(9, width)
        self.interactions = nn.ModuleList(Interaction(width) for _ in range(2))
        self.energy = nn.Linear(width, 1)

    def forward(self, atoms, places):
        near = torch.exp(-torch.cdist(places.chunk(GP, 1)[PART], places))
        x = self.atoms(atoms.chunk(GP, 1)[PART])
        for interaction in self.interactions:
            x = interaction(x, near)
        return whole(self.energy(x), summed="--bug" not in sys.argv).sum((1, 2))


torch.manual_seed(67)
model = Potential().to(KIND)
if WORLD > 1:
    model = DDP(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
tracer = ttrace.attach(model, optimizer=optimizer, axes={"dp": DP, "gp": GP} if WORLD > 1 else None)
for number in range(2):
    torch.manual_seed(670 + number)
    atoms, places, energies = torch.randint(9, (4, 8)), torch.randn(4, 8, 3).to(KIND), torch.randn(4).to(KIND)
    with tracer.step(number):
        loss = nn.functional.l1_loss(model(atoms.chunk(DP)[BATCH], places.chunk(DP)[BATCH]), energies.chunk(DP)[BATCH])
        loss.backward()
        norm = torch.stack([p.grad.double().norm() for p in model.parameters()]).norm()
        optimizer.step()
        optimizer.zero_grad()
    print(f"rank {RANK} step {number}: loss {loss.item():.6f} gradients {norm.item():.7f}", flush=True)
if WORLD > 1:
    dist.destroy_process_group()
