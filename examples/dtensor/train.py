"""Trains a small transformer with torch's own parallelism; the lines that TTrace needs are marked.

    ttrace check --reference "python train.py" \\
                 --candidate "torchrun --nproc-per-node 4 train.py --fsdp --tp 2 --sp"

--fsdp (FSDP2) or --hsdp (FSDP2 in two groups that replicate each other) and --tp N go together; what --tp
leaves of the ranks is data-parallel. --ddp goes alone, because DDP does not take DTensors. --pp splits the
layers into as many stages as there are ranks, with 1F1B. --compile compiles every block by itself, --autocast
keeps parameters in F32 and computes in BF16. All runs see the same batches. --device cuda uses NCCL, and
gives each rank the GPU of its number on its machine. NCCL refuses two ranks on one GPU; --backend gloo takes
them.
"""

from __future__ import annotations

import argparse
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
import ttrace  # ttrace
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

VOCABULARY, HIDDEN, HEADS, LAYERS, POSITIONS, BATCH = 64, 32, 4, 4, 16, 8
STAGE_MICROBATCHES = 4
TYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--fsdp", action="store_true")
    add("--hsdp", action="store_true", help="FSDP2 in two groups of ranks that replicate each other")
    add("--ddp", action="store_true")
    add("--tp", type=int, default=1)
    add("--sp", action="store_true", help="sequence parallelism over --tp")
    add("--pp", action="store_true")
    add("--microbatches", type=int, default=1, help="of the reference, where stages have several")
    add("--compile", action="store_true", help="torch.compile of every block")
    add("--autocast", action="store_true", help="BF16 operators on F32 parameters")
    add("--precision", default="f32", choices=sorted(TYPES))
    add("--steps", type=int, default=2)
    add("--seed", type=int, default=1)
    add("--device", default="cpu", choices=["cpu", "cuda"])
    add("--backend", choices=["gloo", "nccl"], help="default: gloo on CPUs, nccl on GPUs")
    args = parser.parse_args()
    if args.ddp and args.tp > 1:
        parser.error(f"--ddp and --tp {args.tp}: DDP does not take DTensors; give --fsdp or --hsdp instead")
    return args


def device_of_rank(kind: str) -> torch.device:
    """Of this type. A GPU becomes the current one: call this before anything else touches a GPU, because
    what is made on another one stays there."""
    if kind == "cpu":
        return torch.device("cpu")
    problem = ""
    if not torch.backends.cuda.is_built():
        problem = f"needs a CUDA build of torch, but this is torch {torch.__version__}; install one"
    elif not torch.cuda.is_available():
        problem = "finds no GPU; see whether nvidia-smi lists one that CUDA_VISIBLE_DEVICES does not hide"
    if problem:
        print(f"train.py: --device cuda {problem}, or use --device cpu", file=sys.stderr)
        sys.exit(2)
    number = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


class Attention(nn.Module):
    """Causal self-attention over however many heads this rank has."""

    def __init__(self):
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(HIDDEN, HIDDEN) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = [
            w(x).unflatten(-1, (-1, HIDDEN // HEADS)).transpose(1, 2) for w in (self.wq, self.wk, self.wv)
        ]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        return self.wo(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2 = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(F.gelu(self.w1(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.attention, self.feed_forward = Attention(), FeedForward()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Transformer(nn.Module):
    """All of it, or, with parts set to None and layers removed, one stage of it."""

    def __init__(self):
        super().__init__()
        self.tokens: nn.Module | None = nn.Embedding(VOCABULARY, HIDDEN)
        self.positions: nn.Module | None = nn.Embedding(POSITIONS, HIDDEN)
        self.layers = nn.ModuleDict({str(i): Block() for i in range(LAYERS)})
        self.norm: nn.Module | None = nn.LayerNorm(HIDDEN)
        self.head: nn.Module | None = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.tokens is not None:
            x = self.tokens(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        for layer in self.layers.values():
            x = layer(x)
        return x if self.head is None else self.head(self.norm(x))


def tensor_parallel(model: Transformer, mesh: DeviceMesh, sequence: bool) -> None:
    between = Shard(1) if sequence else Replicate()
    plan = {
        "tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
        "head": ColwiseParallel(input_layouts=between, output_layouts=Replicate()),
    }
    layer = {
        **{f"attention.{name}": ColwiseParallel() for name in ("wq", "wk", "wv")},
        "attention.wo": RowwiseParallel(output_layouts=between),
        "feed_forward.w1": ColwiseParallel(),
        "feed_forward.w2": RowwiseParallel(output_layouts=between),
    }
    if sequence:
        gathered = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
        plan |= {
            "positions": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(0)),
            "norm": SequenceParallel(),
        }
        layer |= {
            "attention_norm": SequenceParallel(),
            "ffn_norm": SequenceParallel(),
            "attention": gathered,
            "feed_forward": gathered,
        }
    parallelize_module(model, mesh, plan)
    for block in model.layers.values():
        parallelize_module(block, mesh, layer)


def data_parallel_mesh(mesh: DeviceMesh) -> DeviceMesh:
    """Without tensor parallelism: one dimension, or those of HSDP."""
    names = tuple(name for name in mesh.mesh_dim_names if name != "tp")
    return mesh[names if len(names) > 1 else names[0]]


def keep_stage(model: Transformer, stage: int, stages: int) -> None:
    for number in range(LAYERS):
        if number * stages // LAYERS != stage:
            del model.layers[str(number)]
    if stage > 0:
        model.tokens = model.positions = None
    if stage < stages - 1:
        model.norm = model.head = None


def losses_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")


def train(args: argparse.Namespace) -> None:
    device = device_of_rank(args.device)
    torch.manual_seed(args.seed)
    kind = TYPES[ttrace.precision(args.precision)]  # ttrace: a check in higher precision asks for its own
    model = Transformer().to(device, kind)
    is_sharded = args.fsdp or args.hsdp
    is_parallel = is_sharded or args.ddp or args.pp or args.tp > 1
    rank = ranks = shard = shards = 0
    if is_parallel:
        dist.init_process_group(args.backend or ("nccl" if args.device == "cuda" else "gloo"))
        rank, ranks = dist.get_rank(), dist.get_world_size()
        shard, shards = rank // args.tp, ranks // args.tp
        sizes = {"replicate": 2, "shard": shards // 2} if args.hsdp else {"dp": shards}
        mesh = init_device_mesh(args.device, (*sizes.values(), args.tp), mesh_dim_names=(*sizes, "tp"))
    if args.tp > 1:
        tensor_parallel(model, mesh["tp"], args.sp)
    if args.compile:
        for name, block in model.layers.items():
            model.layers[name] = torch.compile(block, fullgraph=True)
    if is_sharded:
        for module in (*model.layers.values(), model):
            fully_shard(module, mesh=data_parallel_mesh(mesh))
    traced = stage = None
    if args.pp:
        keep_stage(model, rank, ranks)
        stage = PipelineStage(model, rank, ranks, device)
        schedule = Schedule1F1B(
            stage, STAGE_MICROBATCHES, loss_fn=lambda logits, labels: losses_of(logits, labels).mean()
        )
        traced = stage
    elif args.ddp:
        model = nn.parallel.DistributedDataParallel(model)
    # Without FSDP2, DTensors and plain tensors stand next to each other, which no _foreach_ operator takes.
    foreach = False if args.tp > 1 and not is_sharded else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=foreach)
    tracer = ttrace.attach(traced or model, optimizer=optimizer)  # ttrace
    generator = torch.Generator().manual_seed(args.seed)
    for number in range(args.steps):
        batch = torch.randint(VOCABULARY, (BATCH, POSITIONS + 1), generator=generator)
        with tracer.step(number) as step:  # ttrace
            optimizer.zero_grad()
            if args.pp:
                total = pipeline_step(schedule, stage, batch.to(device))
            else:
                mine = batch.chunk(shards)[shard] if shards else batch
                total = plain_step(model, mine.to(device), args, step)
            optimizer.step()
        if total is not None and rank in (0, ranks - 1):
            print(f"step {number} loss {total:.9g}", flush=True)
    if is_parallel:
        dist.destroy_process_group()


def plain_step(
    model: nn.Module, batch: torch.Tensor, args: argparse.Namespace, step: ttrace.TracedStep
) -> float:
    total, parts = 0.0, args.microbatches
    for part in batch.chunk(parts):
        with torch.autocast(args.device, torch.bfloat16, enabled=args.autocast):
            losses = losses_of(model(part[:, :-1]), part[:, 1:])
        step.loss(losses)  # ttrace
        (losses.mean() / parts).backward()
        total += losses.mean().item() / parts
    return total


def pipeline_step(schedule: Schedule1F1B, stage: PipelineStage, batch: torch.Tensor) -> float | None:
    if stage.is_first:
        schedule.step(batch[:, :-1])
    if not stage.is_last:
        if not stage.is_first:
            schedule.step()
        return None
    losses: list[torch.Tensor] = []
    schedule.step(target=batch[:, 1:], losses=losses)
    return sum(loss.item() for loss in losses) / len(losses)


def main() -> None:
    train(arguments())


if __name__ == "__main__":
    main()
