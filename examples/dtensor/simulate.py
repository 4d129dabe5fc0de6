"""Trains a small transformer whose tensors are all DTensors, on processes or on simulated ranks.

    ttrace check --reference "python simulate.py" --candidate "python simulate.py --simulate 64 --tp 8"

--simulate N runs all N ranks in this process: no torchrun, no network. Without it torchrun starts the ranks; without
torchrun there is one. --tp N ranks cut the layers, and what that leaves of the ranks
has samples of its own. --bug NAME puts one silent bug into the parallel run; the lines that TTrace needs are marked.
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

VOCABULARY, HIDDEN, HEADS, POSITIONS, BATCH = 64, 32, 8, 8, 16
TYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16}
BUGS = ("output-not-summed", "gradient-not-averaged", "one-rank-skips-an-update")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--simulate", type=int, metavar="N", help="ranks, all in this process; default: TTRACE_SIMULATE")
    add("--tp", type=int, default=1)
    add("--layers", type=int, default=2)
    add("--precision", default="f32", choices=sorted(TYPES))
    add("--bug", default="", choices=BUGS)
    return parser.parse_args()


class Linear(nn.Linear):
    """Of a cut input, every rank of tp has an addend of the output."""

    forgets_the_sum = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        if not isinstance(y, DTensor) or not any(place.is_partial() for place in y.placements):
            return y
        if self.forgets_the_sum:
            return DTensor.from_local(y.to_local(), y.device_mesh, [y.placements[0], Replicate()], run_check=False)
        return y.redistribute(placements=[y.placements[0], Replicate()])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.wq, self.wk, self.wv, self.wo = (Linear(HIDDEN, HIDDEN, bias=False) for _ in range(4))
        self.w1, self.w2 = Linear(HIDDEN, 4 * HIDDEN, bias=False), Linear(4 * HIDDEN, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.attention_norm(x)
        q, k, v = (w(y).unflatten(-1, (HEADS, HIDDEN // HEADS)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        scores = torch.softmax(q @ k.transpose(2, 3) / (HIDDEN // HEADS) ** 0.5, -1)
        x = x + self.wo((scores @ v).transpose(1, 2).flatten(2))
        return x + self.w2(F.gelu(self.w1(self.mlp_norm(x))))


class Transformer(nn.Module):
    def __init__(self, layers: int):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(Block() for _ in range(layers))
        self.norm = nn.LayerNorm(HIDDEN)
        self.head = Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.tokens(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def distribute(model: nn.Module, mesh: DeviceMesh) -> None:
    """All ranks of dp hold the same; those of tp have rows of some weights and columns of others."""
    cut = {"wq": 0, "wk": 0, "wv": 0, "w1": 0, "wo": 1, "w2": 1}
    for name, parameter in list(model.named_parameters()):
        path, _, last = name.rpartition(".")
        dim = cut.get(path.rpartition(".")[2])
        places = [Replicate(), Replicate() if dim is None else Shard(dim)]
        placed = distribute_tensor(parameter.detach(), mesh, places, src_data_rank=None)
        setattr(model.get_submodule(path), last, nn.Parameter(placed))


def average_gradients(model: nn.Module, bug: str) -> None:
    """Every rank of dp has an addend of each gradient."""
    for name, parameter in model.named_parameters():
        gradient = parameter.grad
        if bug == "gradient-not-averaged" and name == "layers.0.w1.weight":
            parameter.grad = DTensor.from_local(gradient.to_local(), gradient.device_mesh, parameter.placements)
        elif isinstance(gradient, DTensor):
            parameter.grad = gradient.redistribute(placements=parameter.placements)


def skip_update(parameter: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    """The last rank keeps its old part of the parameter."""
    part = list(parameter._local_tensor._local_tensors.values())[-1]
    kept: dict[str, torch.Tensor] = {}
    optimizer.register_step_pre_hook(lambda *unused: kept.update(old=part.clone()))
    optimizer.register_step_post_hook(lambda *unused: part.copy_(kept["old"]))


def train(args: argparse.Namespace) -> None:
    torch.manual_seed(1)
    kind = TYPES[ttrace.precision(args.precision)]  # ttrace: a check in higher precision asks for its own
    model = Transformer(args.layers).to(kind)
    batch = torch.randint(VOCABULARY, (BATCH, POSITIONS + 1))
    if dist.is_initialized():
        mesh = init_device_mesh("cpu", (dist.get_world_size() // args.tp, args.tp), mesh_dim_names=("dp", "tp"))
        distribute(model, mesh)
        batch = distribute_tensor(batch, mesh, [Shard(0), Replicate()], src_data_rank=None)
    model.layers[0].wo.forgets_the_sum = args.bug == "output-not-summed"
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    if args.bug == "one-rank-skips-an-update":
        skip_update(model.layers[0].w2.weight, optimizer)
    # The loss is a mean over the samples of all ranks, because it is that of a DTensor.
    options = {"batch_axes": ("dp",), "loss": "sum"} if dist.is_initialized() else {}
    tracer = ttrace.attach(model, optimizer=optimizer, **options)  # ttrace
    with tracer.step(0) as step:  # ttrace
        logits = model(batch[:, :-1])
        losses = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="none")
        step.loss(losses)  # ttrace
        losses.mean().backward()
        average_gradients(model, args.bug)
        optimizer.step()


def main() -> None:
    args = arguments()
    with ttrace.simulated(args.simulate):  # ttrace: if ranks are simulated, in this process
        if "RANK" in os.environ:
            dist.init_process_group("gloo")
        train(args)
        if "RANK" in os.environ:
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
