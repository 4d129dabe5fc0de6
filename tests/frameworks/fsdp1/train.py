"""A small language model in FullyShardedDataParallel, the predecessor of FSDP2, with a rotation that FSDP ignores.

    ttrace check --reference "python train.py" --candidate "torchrun --nproc-per-node 2 train.py --strategy FULL_SHARD"
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
import ttrace  # ttrace
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64}
VOCABULARY, HIDDEN, LAYERS, LENGTH, BATCH = 64, 30, 2, 12, 8  # 30: parts end within rows


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 64), nn.Linear(64, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(VOCABULARY, HIDDEN), nn.Linear(HIDDEN, VOCABULARY)
        self.rotate = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.rotate(self.tokens(tokens))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--strategy", default="", choices=["", *ShardingStrategy.__members__], help="default: no FSDP")
    add("--accumulate", type=int, default=1, help="micro-batches of a step")
    add("--clip", type=float, default=0.0, help="largest norm of the gradients; 0: not clipped")
    add("--precision", default="f32", choices=sorted(TYPES))
    add("--steps", type=int, default=2)
    return parser.parse_args()


def sharded(args: argparse.Namespace, model: nn.Module) -> nn.Module:
    strategy = ShardingStrategy[args.strategy]
    group = None
    if "HYBRID" in args.strategy:
        half = dist.get_world_size() // 2
        group = dist.device_mesh.init_device_mesh("cpu", (2, half), mesh_dim_names=("outer", "inner"))
    return FullyShardedDataParallel(
        model,
        ignored_modules=[model.rotate],
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        sharding_strategy=strategy,
        use_orig_params=True,
        device_id=torch.device("cpu"),
        device_mesh=group,
    )


def average(parameters) -> None:
    """Over the ranks, of gradients that FSDP leaves alone."""
    for parameter in parameters if dist.is_initialized() else ():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def clip(model: nn.Module, norm: float) -> None:
    if isinstance(model, FullyShardedDataParallel):
        model.clip_grad_norm_(norm)
    else:
        nn.utils.clip_grad_norm_(model.parameters(), norm)


def texts_of(step: int, accumulate: int, rank: int, ranks: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(10 + step)
    text = torch.randint(VOCABULARY, (accumulate, BATCH, LENGTH + 1), generator=generator)
    return [part.chunk(ranks)[rank] for part in text]


def train(args: argparse.Namespace) -> None:
    kind = TYPES[ttrace.precision(args.precision)]  # ttrace
    torch.manual_seed(0)
    model = Model().to(kind)
    rotate, rank, ranks = model.rotate, 0, 1
    if args.strategy:
        dist.init_process_group("gloo")
        rank, ranks = dist.get_rank(), dist.get_world_size()
        model = sharded(args, model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tracer = ttrace.attach(model, optimizer=optimizer)  # ttrace
    for number in range(args.steps):
        with tracer.step(number) as step:  # ttrace
            for text in texts_of(number, args.accumulate, rank, ranks):
                losses = F.cross_entropy(model(text[:, :-1]).transpose(1, 2), text[:, 1:], reduction="none")
                step.loss(losses)  # ttrace
                loss = losses.mean() / args.accumulate
                loss.backward()
            average(rotate.parameters())
            if args.clip > 0:
                clip(model, args.clip)
            optimizer.step()
            optimizer.zero_grad()
        total = sum(float(p.detach().double().sum()) * (i + 1) for i, p in enumerate(model.parameters()))
        print(f"rank {rank} step {number} loss {loss.item():.9g} {total:.17g}", flush=True)
    if args.strategy:
        dist.destroy_process_group()


def main() -> None:
    train(arguments())


if __name__ == "__main__":
    main()
