"""A generator and a discriminator, each with its optimizer, in one step. `--bug` doubles the generator's gradients."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
import ttrace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Network(nn.Module):
    def __init__(self, taken: int, returned: int):
        super().__init__()
        self.hidden, self.out = nn.Linear(taken, 24), nn.Linear(24, returned)
        self.scale = nn.Parameter(torch.tensor(0.7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * self.out(F.leaky_relu(self.hidden(x), 0.2))


def main() -> None:
    if WORLD > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(3)
    kind = ttrace.dtype(torch.float32)
    models: dict[str, nn.Module] = {"generator": Network(6, 12).to(kind), "critic": Network(12, 1).to(kind)}
    if WORLD > 1:
        models = {name: DistributedDataParallel(model) for name, model in models.items()}
    optimizers = {name: torch.optim.Adam(model.parameters(), lr=1e-3) for name, model in models.items()}
    tracer = ttrace.attach(models, optimizer=list(optimizers.values()))
    generator, critic = models.values()
    real, z = (torch.randn(8, size).to(kind).chunk(WORLD)[RANK] for size in (12, 6))
    with tracer.step(0):
        fake = generator(z)
        optimizers["critic"].zero_grad()
        (F.softplus(-critic(real)) + F.softplus(critic(fake.detach()))).mean().backward()
        optimizers["critic"].step()
        optimizers["generator"].zero_grad()
        F.softplus(-critic(fake)).mean().backward()
        if "--bug" in sys.argv:
            for parameter in generator.parameters():
                parameter.grad *= 2
        optimizers["generator"].step()
    if WORLD > 1:
        dist.destroy_process_group()


main()
