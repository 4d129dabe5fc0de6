"""Trains a transformer whose layers, loss and schedule are functions: it has one module, which holds weights.

--ddp shares the samples of a batch among ranks, --recompute computes each layer again in backward, and
--microbatches accumulates gradients.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
import ttrace  # ttrace
from torch import nn
from torch.utils.checkpoint import checkpoint

VOCABULARY, HIDDEN, HEADS, LAYERS, POSITIONS, BATCH = 64, 32, 4, 3, 16, 8
TYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ddp", action="store_true")
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--microbatches", type=int, default=1)
    parser.add_argument("--precision", default="f32", choices=sorted(TYPES))
    parser.add_argument("--steps", type=int, default=2)
    return parser.parse_args()


def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    wide = x.float() if x.dtype == torch.bfloat16 else x
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
    return (wide * scale).to(x.dtype) * weight


def rotation(positions: int, width: int, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    frequencies = 100.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.outer(torch.arange(positions, dtype=torch.float64), frequencies).repeat(1, 2)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


@ttrace.region("rope")  # ttrace
def rotated(x: torch.Tensor) -> torch.Tensor:
    cos, sin = rotation(x.shape[-2], x.shape[-1], x)
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


@ttrace.region("attention")  # ttrace
def attention(x: torch.Tensor, joint: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (x @ joint).chunk(3, -1))
    scores = rotated(q) @ rotated(k).transpose(-1, -2) / (HIDDEN // HEADS) ** 0.5
    hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    mixed = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
    return mixed.transpose(1, 2).flatten(2) @ out


@ttrace.region("mlp")  # ttrace
def mlp(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    return (F.silu(x @ gate) * (x @ up)) @ down


@ttrace.region("loss")  # ttrace
def losses_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(logits, -1) - logits.gather(-1, labels[..., None])[..., 0]


def layer(x: torch.Tensor, w: nn.ParameterDict) -> torch.Tensor:
    x = x + attention(normed(x, w["norm1"]), w["joint"], w["out"])
    return x + mlp(normed(x, w["norm2"]), w["gate"], w["up"], w["down"])


class Transformer(nn.Module):
    def __init__(self, recompute: bool):
        super().__init__()
        self.recompute = recompute

        def matrix(rows: int, columns: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(rows, columns) / rows**0.5)

        self.tokens = matrix(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(
            nn.ParameterDict({
                "norm1": nn.Parameter(torch.ones(HIDDEN)), "norm2": nn.Parameter(torch.ones(HIDDEN)),
                "joint": matrix(HIDDEN, 3 * HIDDEN), "out": matrix(HIDDEN, HIDDEN),
                "gate": matrix(HIDDEN, 2 * HIDDEN), "up": matrix(HIDDEN, 2 * HIDDEN),
                "down": matrix(2 * HIDDEN, HIDDEN),
            })
            for _ in range(LAYERS)
        )  # fmt: skip
        self.norm = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.tokens[tokens]
        for weights in self.layers:
            x = checkpoint(layer, x, weights, use_reentrant=False) if self.recompute else layer(x, weights)
        return losses_of(normed(x, self.norm) @ self.tokens.T, labels)


def accumulated(model: nn.Module, batch: torch.Tensor, microbatches: int, step: ttrace.TracedStep) -> float:
    total = 0.0
    for part in batch.chunk(microbatches):
        losses = model(part[:, :-1], part[:, 1:])
        step.loss(losses)  # ttrace
        loss = losses.mean() / microbatches
        loss.backward()
        total += loss.item()
    return total


def train(args: argparse.Namespace) -> None:
    torch.manual_seed(1)
    model: nn.Module = Transformer(args.recompute).to(TYPES[ttrace.precision(args.precision)])  # ttrace
    rank, ranks = 0, 1
    if args.ddp:
        dist.init_process_group("gloo")
        rank, ranks = dist.get_rank(), dist.get_world_size()
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tracer = ttrace.attach(model, optimizer=optimizer)  # ttrace
    generator = torch.Generator().manual_seed(1)
    for number in range(args.steps):
        batch = torch.randint(VOCABULARY, (BATCH, POSITIONS + 1), generator=generator)
        # Of every micro-batch, each rank has its part.
        mine = batch.unflatten(0, (args.microbatches, ranks, -1))[:, rank].flatten(0, 1)
        with tracer.step(number) as step:  # ttrace
            optimizer.zero_grad()
            total = accumulated(model, mine, args.microbatches, step)
            optimizer.step()
        if rank == 0:
            print(f"step {number} loss {total:.9g}", flush=True)
    if args.ddp:
        dist.destroy_process_group()


def main() -> None:
    train(arguments())


if __name__ == "__main__":
    main()
