"""A small network with dropout: in modules, in functions and in attention; in DDP, under tensor and sequence
parallelism of torch, and recomputed."""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
import ttrace
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

VOCABULARY, HIDDEN, HEADS, LAYERS, BATCH, LENGTH = 64, 32, 4, 2, 8, 16

parser = argparse.ArgumentParser()
parser.add_argument("--precision", default="f32", choices=["f32", "bf16"])
parser.add_argument("--layout", default="one", choices=["one", "ddp", "tp", "sp"])
parser.add_argument("--recompute", choices=["kept", "lost"], help="lost: without the state of random numbers")
parser.add_argument("--seeds", default="right", choices=["right", "same", "other"], help="of ranks; wrong ones, too")
parser.add_argument("--seeded", action="store_true", help="dropouts with seeds of their own, and no attention")
parser.add_argument("--dealt", action="store_true", help="rank r has samples r, r + ranks, ..., as DistributedSampler")
parser.add_argument("--eval", action="store_true")
parser.add_argument("--steps", type=int, default=1)
ARGS = parser.parse_args()
TYPE = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16}[ttrace.precision(ARGS.precision)]
RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
IS_PARALLEL = ARGS.layout in ("tp", "sp")


class SeededDropout(nn.Dropout):
    """With a seed of its own. Ranks that hold different parts of its input need different ones."""

    def __init__(self, seed: int, is_cut: bool):
        super().__init__(0.1)
        differs = {"right": is_cut, "same": False, "other": True}[ARGS.seeds]
        self.seed = seed + (1000 * RANK if IS_PARALLEL and differs else 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return super().forward(x)


class Block(nn.Module):
    def __init__(self, number: int):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)
        self.inner = SeededDropout(10 * number + 1, is_cut=True)
        self.drop = SeededDropout(10 * number + 2, is_cut=ARGS.layout == "sp")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.down(self.inner(F.gelu(self.up(self.norm(x))))))


class Attending(Block):
    """Its dropouts draw from the generator of the program."""

    def __init__(self, number: int):
        super().__init__(number)
        self.inner, self.drop = nn.Dropout(0.1), nn.Identity()
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        p = 0.1 if self.training else 0.0
        mixed = F.scaled_dot_product_attention(*heads, dropout_p=p, is_causal=True)
        x = x + F.dropout(self.out(mixed.transpose(1, 2).flatten(2)), 0.1, self.training)
        return super().forward(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        block = Block if ARGS.seeded else Attending
        self.tokens, self.head = nn.Embedding(VOCABULARY, HIDDEN), nn.Linear(HIDDEN, VOCABULARY)
        self.blocks = nn.ModuleList(block(number) for number in range(LAYERS))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            if ARGS.recompute:
                x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=ARGS.recompute == "kept")
            else:
                x = block(x)
        return self.head(x)


def parallelize(model: Model) -> None:
    mesh = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("tp",))
    stream, is_local = (Shard(1), False) if ARGS.layout == "sp" else (Replicate(), True)
    plan: dict = {
        "tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=stream, use_local_output=is_local),
        "head": ColwiseParallel(input_layouts=stream, output_layouts=Replicate()),
    }
    for name in (f"blocks.{number}" for number in range(LAYERS)):
        if ARGS.layout == "sp":
            plan[f"{name}.norm"] = SequenceParallel()
        plan[f"{name}.up"] = ColwiseParallel(input_layouts=stream, use_local_output=is_local)
        plan[f"{name}.down"] = RowwiseParallel(output_layouts=stream, use_local_output=is_local)
    parallelize_module(model, mesh, plan)


def main() -> None:
    if WORLD > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    model: nn.Module = Model().to(TYPE)
    if ARGS.layout == "ddp":
        model = DistributedDataParallel(model)
    elif IS_PARALLEL and WORLD > 1:
        parallelize(model)
    if ARGS.eval:
        model.eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    tracer = ttrace.attach(model, optimizer=optimizer)
    text = torch.randint(VOCABULARY, (BATCH, LENGTH + 1))
    if ARGS.layout == "ddp":
        text = text[RANK::WORLD] if ARGS.dealt else text.chunk(WORLD)[RANK]
    for step in range(ARGS.steps):
        torch.manual_seed(100 + step + (0 if IS_PARALLEL or ARGS.seeds == "same" else 1000 * RANK))
        with tracer.step(step):
            optimizer.zero_grad()
            logits = model(text[:, :-1])
            F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten()).backward()
            optimizer.step()
    if WORLD > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
