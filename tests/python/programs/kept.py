"""A small convolutional net with what training keeps beside parameters: states of an optimizer, buffers, an average.

On several ranks DistributedDataParallel shares the samples out. Options plant one error each.
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
import ttrace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("--optimizer", choices=["sgd", "adafactor", "adamw"], default="sgd")
parser.add_argument("--eval", action="store_true", help="the normalisation uses its running statistics")
parser.add_argument("--checkpoint", action="store_true", help="the block runs again in backward, and counts twice")
parser.add_argument("--still", action="store_true", help="... but the statistics move once")
parser.add_argument("--halve", help="the last rank halves this state after the step")
parser.add_argument("--rate", type=float, default=0.1)
parser.add_argument("--next-rate", type=float, default=0.05)
parser.add_argument("--decay", type=float, default=0.9, help="of the average")
parser.add_argument("--own-start", action="store_true", help="every rank draws the head's weight itself")
ARGS = parser.parse_args()
TYPE = {"f32": torch.float32, "f64": torch.float64}[ttrace.precision("f32")]
WORLD, RANK = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))


class Still(nn.BatchNorm2d):
    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.momentum = 0.1 if self.calls % 2 == 1 else 0.0
        return super().forward(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.conv = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)
        self.bn, self.head = (Still if ARGS.still else nn.BatchNorm2d)(8), nn.Linear(8, 5)
        self.register_buffer("table", torch.linspace(0.5, 1.5, 8), persistent=False)

    def block(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.bn(self.conv(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = checkpoint(self.block, x, use_reentrant=False) if ARGS.checkpoint else self.block(x)
        return self.head(x.mean((2, 3)) * self.table)


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    if ARGS.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=ARGS.rate, momentum=0.9)
    kind = {"adafactor": torch.optim.Adafactor, "adamw": torch.optim.AdamW}[ARGS.optimizer]
    return kind(model.parameters(), lr=ARGS.rate)


torch.manual_seed(0)
net = Net().to(TYPE)
if ARGS.eval:
    net.bn.eval()
model: nn.Module = net
if WORLD > 1:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(net)
if ARGS.own_start:
    with torch.no_grad():
        net.head.weight.normal_(generator=torch.Generator().manual_seed(7 + RANK))
average = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
optimizer = optimizer_of(model)
tracer = ttrace.attach(model, optimizer=optimizer, copies={"ema": average})
torch.manual_seed(2)
x, y = (2 * torch.randn(8, 3, 8, 8) + 1).to(TYPE), torch.randint(5, (8,))
part = slice(RANK * 8 // WORLD, (RANK + 1) * 8 // WORLD)
with tracer.step(0) as step:
    losses = nn.functional.cross_entropy(model(x[part]), y[part], reduction="none")
    step.loss(losses)
    losses.mean().backward()
    optimizer.step()
    if ARGS.halve and RANK == WORLD - 1:
        for state in optimizer.state.values():
            if ARGS.halve in state:
                state[ARGS.halve].mul_(0.5)
    for group in optimizer.param_groups:
        group["lr"] = ARGS.next_rate
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            average[name].lerp_(parameter, 1 - ARGS.decay)
if WORLD > 1:
    dist.destroy_process_group()
