"""A hand-written tensor-parallel network, in plain tensors, that knows nothing of TTrace.

The second linear layer of a block returns a rank's addend, which the block sums. With --unsummed the middle one does not."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy, gelu

PARALLEL, UNSUMMED = "--parallel" in sys.argv, "--unsummed" in sys.argv
if PARALLEL:
    dist.init_process_group("gloo")
rank, ranks = (dist.get_rank(), dist.get_world_size()) if PARALLEL else (0, 1)
FEATURES, HIDDEN, TOKENS = 32, 64, 64


class Summed(torch.autograd.Function):
    """Over ranks, in the forward or in the backward."""

    @staticmethod
    def forward(ctx, values, in_forward):
        ctx.in_forward = in_forward
        values = values.clone()
        if PARALLEL and in_forward:
            dist.all_reduce(values)
        return values

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        if PARALLEL and not ctx.in_forward:
            dist.all_reduce(gradient)
        return gradient, None


class Block(nn.Module):
    def __init__(self, number, ranks):
        super().__init__()
        self.norm = nn.LayerNorm(FEATURES)
        self.up = nn.Linear(FEATURES, HIDDEN // ranks, bias=False)
        self.down = nn.Linear(HIDDEN // ranks, FEATURES, bias=False)
        self.sums = not (UNSUMMED and number == 1)

    def forward(self, values):
        addend = self.down(gelu(self.up(Summed.apply(self.norm(values), False))))
        return values + (Summed.apply(addend, True) if self.sums else addend)


class Network(nn.Sequential):
    def __init__(self, ranks):
        blocks = [Block(number, ranks) for number in range(3)]
        super().__init__(nn.Embedding(TOKENS, FEATURES), *blocks, nn.Linear(FEATURES, TOKENS))


torch.manual_seed(0)
whole = Network(1)
network = Network(ranks)
with torch.no_grad():
    for (name, parameter), full in zip(network.named_parameters(), whole.parameters(), strict=True):
        dim = 0 if "up" in name else 1 if "down" in name else None
        parameter.copy_(full if dim is None else full.chunk(ranks, dim)[rank])
optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
generator = torch.Generator().manual_seed(1)
for _ in range(2):
    tokens, labels = torch.randint(TOKENS, (2, 4, 16), generator=generator)
    cross_entropy(network(tokens).flatten(0, 1), labels.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
if PARALLEL:
    dist.destroy_process_group()
