"""Trains a small model, on two ranks with its layers cut by hand. docs/tutorial.md traces it.

python train.py
torchrun --nproc-per-node 2 train.py
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

VOCABULARY, HIDDEN, LAYERS, BATCH, LENGTH = 64, 32, 3, 8, 16
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def sum_over_ranks(x):
    x = x.clone()
    if RANKS > 1:
        dist.all_reduce(x)
    return x


class Copy(torch.autograd.Function):
    """Hands the input to all ranks. Its gradient is the sum of theirs."""

    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        return sum_over_ranks(gradient)


class Sum(torch.autograd.Function):
    """Adds up what the ranks have."""

    @staticmethod
    def forward(context, x):
        return sum_over_ranks(x)

    @staticmethod
    def backward(context, gradient):
        return gradient


class FeedForward(nn.Module):
    """Every rank has some rows of the first weight, and the same columns of the second."""

    def __init__(self):
        super().__init__()
        up, down = torch.randn(4 * HIDDEN, HIDDEN), torch.randn(HIDDEN, 4 * HIDDEN)
        self.up = nn.Parameter(0.1 * up.chunk(RANKS, dim=0)[RANK])
        self.down = nn.Parameter(0.1 * down.chunk(RANKS, dim=1)[RANK])

    def forward(self, x):
        wide = F.gelu(F.linear(Copy.apply(x), self.up))
        addend = F.linear(wide, self.down)
        return Sum.apply(addend)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.feed_forward = nn.LayerNorm(HIDDEN), FeedForward()

    def forward(self, x):
        return x + self.feed_forward(self.norm(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.head = nn.Embedding(VOCABULARY, HIDDEN), nn.Linear(HIDDEN, VOCABULARY)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, tokens):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def train_step(model, optimizer, tokens):
    optimizer.zero_grad()
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1))
    for step in range(4):
        loss = train_step(model, optimizer, tokens)
        if RANK == 0:
            print(f"step {step}: loss {loss:.3f}")


if RANKS > 1:
    dist.init_process_group("gloo")
main()
if RANKS > 1:
    dist.barrier()  # a rank that exits before the others is aborted more often
    dist.destroy_process_group()
