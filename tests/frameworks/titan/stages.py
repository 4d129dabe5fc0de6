"""Trains a small transformer in stages of torch.distributed.pipelining; the lines that TTrace needs are marked.

    ttrace check --reference "python stages.py" \\
                 --candidate "torchrun --nproc-per-node 4 stages.py --schedule Interleaved1F1B --fsdp"

--schedule takes any of torch's names. Every rank has one stage or two, by what the schedule wants. Ranks that two
stages leave over shard each stage by --fsdp (FSDP2) or cut it by --tp (DTensor). All runs see the same batches.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
import ttrace  # ttrace
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

VOCABULARY, HIDDEN, HEADS, LAYERS, POSITIONS, BATCH, MICROBATCHES = 96, 48, 4, 4, 12, 16, 4
TYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16}
STAGE_RANKS = 2  # ranks among which the layers are divided


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schedule", help="without one, the whole model on one rank")
    parser.add_argument("--fsdp", action="store_true")
    parser.add_argument("--keep-gathered", action="store_true", help="between forward and backward, with --fsdp")
    parser.add_argument("--tp", action="store_true")
    parser.add_argument("--precision", default="f32", choices=sorted(TYPES))
    parser.add_argument("--steps", type=int, default=2)
    return parser.parse_args()


class Layer(nn.Module):
    """Attention and a gated MLP side by side, over however many heads and columns this rank has."""

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(HIDDEN, eps=1e-5)
        self.queries, self.keys, self.values = (nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(3))
        self.gate, self.up = (nn.Linear(HIDDEN, 2 * HIDDEN, bias=False) for _ in range(2))
        self.mixed, self.down = nn.Linear(HIDDEN, HIDDEN, bias=False), nn.Linear(2 * HIDDEN, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = self.norm(x)
        heads = [
            part(given).unflatten(-1, (-1, HIDDEN // HEADS)).transpose(1, 2)
            for part in (self.queries, self.keys, self.values)
        ]
        seen = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2)
        return x + self.mixed(seen) + self.down(F.silu(self.gate(given)) * self.up(given))


class Model(nn.Module):
    """All layers, or those of one stage."""

    def __init__(self):
        super().__init__()
        self.tokens: nn.Module | None = nn.Embedding(VOCABULARY, HIDDEN)
        self.positions: nn.Module | None = nn.Embedding(POSITIONS, HIDDEN)
        self.layers = nn.ModuleDict({str(number): Layer() for number in range(LAYERS)})
        self.head: nn.Module | None = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.tokens is not None:
            x = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        for layer in self.layers.values():
            x = layer(x)
        return x if self.head is None else self.head(x)


def stage_of(number: int, stages: int, seed: int, kind: torch.dtype) -> Model:
    torch.manual_seed(seed)
    model = Model().to(kind)
    for layer in range(LAYERS):
        if layer * stages // LAYERS != number:
            del model.layers[str(layer)]
    if number > 0:
        model.tokens = model.positions = None
    if number < stages - 1:
        model.head = None
    return model


def cut(model: Model, mesh: DeviceMesh, args: argparse.Namespace) -> None:
    plan = {name: ColwiseParallel() for name in ("queries", "keys", "values", "gate", "up")}
    for layer in model.layers.values():
        if args.tp:
            parallelize_module(layer, mesh, plan | {"mixed": RowwiseParallel(), "down": RowwiseParallel()})
        if args.fsdp:
            fully_shard(layer, mesh=mesh, reshard_after_forward=not args.keep_gathered)
    if args.fsdp:
        fully_shard(model, mesh=mesh, reshard_after_forward=not args.keep_gathered)


def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def numbers_of_stages(name: str, rank: int) -> list[int]:
    """In a V, the first rank has the first stage and the last one."""
    if issubclass(get_schedule_class(name), PipelineScheduleSingle):
        return [rank]
    return [rank, 2 * STAGE_RANKS - 1 - rank] if name in ("ZBVZeroBubble", "DualPipeV") else [rank, STAGE_RANKS + rank]


def main() -> None:
    args = arguments()
    kind = TYPES[ttrace.precision(args.precision)]  # ttrace
    schedule = None
    if args.schedule:
        dist.init_process_group("gloo")
        within = "tp" if args.tp else "dp"
        sizes = (STAGE_RANKS, dist.get_world_size() // STAGE_RANKS)
        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("pp", within))
        rank, group = mesh["pp"].get_local_rank(), mesh["pp"].get_group()
        part, parts = (mesh["dp"].get_local_rank(), mesh["dp"].size()) if args.fsdp else (0, 1)
        numbers = numbers_of_stages(args.schedule, rank)
        models = [stage_of(number, STAGE_RANKS * len(numbers), 1, kind) for number in numbers]
        for model in models:
            cut(model, mesh[within], args)
        stages = [
            PipelineStage(model, number, STAGE_RANKS * len(numbers), torch.device("cpu"), group=group)
            for model, number in zip(models, numbers)
        ]
        of_one = len(stages) == 1
        schedule = get_schedule_class(args.schedule)(stages[0] if of_one else stages, MICROBATCHES, loss_fn=loss_of)
    else:
        models = [stage_of(0, 1, 1, kind)]
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-3) for model in models]
    tracer = ttrace.attach(schedule or models[0], optimizer=optimizers)  # ttrace
    generator = torch.Generator().manual_seed(1)
    for number in range(args.steps):
        batch = torch.randint(VOCABULARY, (BATCH, POSITIONS + 1), generator=generator)
        with tracer.step(number) as step:  # ttrace
            for optimizer in optimizers:
                optimizer.zero_grad()
            if schedule is not None:
                mine = torch.cat([one.chunk(parts)[part] for one in batch.chunk(MICROBATCHES)])
                tokens = (mine[:, :-1],) if 0 in numbers else ()
                schedule.step(*tokens, target=mine[:, 1:] if stages[-1].is_last or stages[0].is_last else None)
            else:
                for one in batch.chunk(MICROBATCHES):
                    loss = loss_of(models[0](one[:, :-1]), one[:, 1:])
                    step.loss(loss)  # ttrace
                    (loss / MICROBATCHES).backward()
            for optimizer in optimizers:
                optimizer.step()
    if args.schedule:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
