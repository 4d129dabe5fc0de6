"""Trains a small transformer whose layers divide four ranks in ways of their own, by DTensor.

    ttrace check --reference "python train.py" --candidate "torchrun --nproc-per-node 4 train.py --strategies wide,narrow"

The ranks are a mesh of 2 x 2. A wide layer has tensor parallelism over all four; a narrow one has it over the inner two,
and its samples are divided over the outer two. Between layers of different strategies the stream is redistributed, and
gradients are reduced over the ranks that hold the same part of the layer.
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
import ttrace  # ttrace
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import local_map

VOCABULARY, HIDDEN, HEAD_SIZE, POSITIONS, BATCH = 48, 32, 8, 12, 8
TYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16}
WHOLE = (Replicate(), Replicate())
STREAM = {"wide": WHOLE, "narrow": (Shard(0), Replicate())}
COLUMN = {"wide": (Shard(0), Shard(0)), "narrow": (Replicate(), Shard(0))}
ROW = {"wide": (Shard(1), Shard(1)), "narrow": (Replicate(), Shard(1))}
FEATURES = {"wide": (Shard(2), Shard(2)), "narrow": (Shard(0), Shard(2))}  # of what column-parallel linears return


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--strategies", default="wide,narrow,narrow,wide", help="wide or narrow for each layer")
    add("--precision", default="f32", choices=sorted(TYPES))
    add("--steps", type=int, default=2)
    add("--seed", type=int, default=1)
    return parser.parse_args()


def redistributed(x: torch.Tensor, placements: tuple) -> torch.Tensor:
    return x.redistribute(placements=placements) if isinstance(x, DTensor) else x


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """[samples, positions, features] of whole heads."""
    q, k, v = (x.unflatten(-1, (-1, HEAD_SIZE)).transpose(1, 2) for x in (q, k, v))
    mixed = torch.softmax(q @ k.transpose(2, 3) / HEAD_SIZE**0.5, -1) @ v
    return mixed.transpose(1, 2).flatten(2)


class Attention(nn.Module):
    def __init__(self, strategy: str):
        super().__init__()
        self.strategy = strategy
        self.wq, self.wk, self.wv = (nn.Linear(HIDDEN, HIDDEN) for _ in range(3))
        self.wo = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.wq(x), self.wk(x), self.wv(x)
        cut = FEATURES[self.strategy]
        # Each rank has heads of its own. DTensor multiplies no matrices that are cut over two axes at once.
        mixed = local_map(attend, list(cut), (cut,) * 3)(q, k, v) if isinstance(q, DTensor) else attend(q, k, v)
        return redistributed(self.wo(mixed), STREAM[self.strategy])


class FeedForward(nn.Module):
    def __init__(self, strategy: str):
        super().__init__()
        self.strategy = strategy
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return redistributed(self.down(F.gelu(self.up(x))), STREAM[self.strategy])


class Layer(nn.Module):
    def __init__(self, strategy: str):
        super().__init__()
        self.strategy = strategy
        self.attention_norm, self.mlp_norm = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.attention, self.mlp = Attention(strategy), FeedForward(strategy)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Transformer(nn.Module):
    def __init__(self, strategies: list[str]):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(POSITIONS, HIDDEN)
        self.layers = nn.ModuleList(Layer(strategy) for strategy in strategies)
        self.norm, self.head = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(positions)
        for layer in self.layers:
            x = redistributed(x, STREAM[layer.strategy])
            x = layer(x)
        return self.head(self.norm(redistributed(x, WHOLE)))


def placements_of(name: str, strategies: list[str]) -> tuple:
    """Of a parameter."""
    parts = name.split(".")
    if parts[0] != "layers" or "norm" in parts[2]:
        return WHOLE
    strategy = strategies[int(parts[1])]
    return (ROW if parts[3] in ("wo", "down") else COLUMN)[strategy]


def distribute(model: Transformer, mesh: DeviceMesh, strategies: list[str]) -> None:
    for name, parameter in list(model.named_parameters()):
        owner = model.get_submodule(name.rpartition(".")[0])
        placed = distribute_tensor(parameter.detach(), mesh, placements_of(name, strategies))
        setattr(owner, name.rpartition(".")[2], nn.Parameter(placed))


def everywhere(tensor: torch.Tensor, mesh: DeviceMesh | None) -> torch.Tensor:
    return tensor if mesh is None else DTensor.from_local(tensor, mesh, WHOLE, run_check=False)


def reduce_gradients(model: nn.Module) -> None:
    """Over the ranks that hold the same part of a parameter and had other samples."""
    for parameter in model.parameters():
        parameter.grad = redistributed(parameter.grad, getattr(parameter, "placements", WHOLE))


def main() -> None:
    args = arguments()
    torch.manual_seed(args.seed)
    strategies = args.strategies.split(",")
    kind = TYPES[ttrace.precision(args.precision)]  # ttrace
    model = Transformer(strategies).to(kind)
    mesh = None
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
        distribute(model, mesh, strategies)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tracer = ttrace.attach(model, optimizer=optimizer)  # ttrace
    generator = torch.Generator().manual_seed(args.seed)
    for number in range(args.steps):
        batch = torch.randint(VOCABULARY, (BATCH, POSITIONS + 1), generator=generator)
        with tracer.step(number) as step:  # ttrace
            optimizer.zero_grad()
            logits = model(everywhere(batch[:, :-1], mesh), everywhere(torch.arange(POSITIONS), mesh))
            logits = logits.to_local() if isinstance(logits, DTensor) else logits
            losses = F.cross_entropy(logits.transpose(1, 2), batch[:, 1:], reduction="none")
            step.loss(losses)  # ttrace
            losses.mean().backward()
            reduce_gradients(model)
            optimizer.step()
        if mesh is None or dist.get_rank() == 0:
            print(f"step {number} loss {losses.mean().item():.9g}", flush=True)
    if mesh is not None:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
