"""A small language model in Megatron-FSDP, the package megatron_fsdp, or in plain torch (no --strategy).

    ttrace check --reference "python train.py" --candidate "torchrun --nproc-per-node 2 train.py --strategy optim_grads"

In BF16 Megatron-FSDP keeps masters in F32, which a plain loop does not have, so that the reference is the same script on
one rank (--strategy no_shard).
"""

from __future__ import annotations

import argparse
import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
import ttrace  # ttrace
from on_cpu import stand_in, start, without_premultiplied_sums
from torch import nn

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64}
VOCABULARY, HIDDEN, LAYERS, LENGTH, BATCH = 64, 30, 3, 12, 8


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 65), nn.Linear(65, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, tied: bool, head_first: bool) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(VOCABULARY, HIDDEN), nn.Linear(HIDDEN, VOCABULARY)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        if not head_first:
            self._modules["head"] = self._modules.pop("head")
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--strategy", default="", choices=["", "no_shard", "optim", "optim_grads", "optim_grads_params"])
    add("--outer", type=int, default=1, help="groups of ranks that are replicas of each other")
    add("--outer-strategy", default="no_shard", choices=["no_shard", "optim"], help="of these groups")
    add("--accumulate", type=int, default=1, help="micro-batches of a step")
    add("--sync", default="each", choices=["each", "last", "after"], help="when gradients are final: after each "
        "micro-batch, which is the default of Megatron-FSDP; in the last one's backward; after the last backward")
    add("--follow", action="store_true", help="traced steps end with the optimizer's")
    add("--decay", action="store_true", help="the learning rate halves behind each of the optimizer's steps")
    add("--clip", type=float, default=0.0, help="largest norm of the gradients; 0: not clipped")
    add("--head-first", action="store_true", help="the model has the head before the blocks")
    add("--tied", action="store_true", help="the head has the embedding's weight")
    add("--no-masters", action="store_true", help="the optimizer updates the parameters' own type")
    add("--precision", default="f32", choices=sorted(TYPES))
    add("--steps", type=int, default=2)
    return parser.parse_args()


def sharded(args: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer):
    from megatron.core.distributed.fsdp.src.megatron_fsdp import fully_shard

    shape, names = (args.outer, dist.get_world_size() // args.outer, 1), ("outer", "dp", "tp")
    mesh = dist.device_mesh.init_device_mesh("cpu", shape, mesh_dim_names=names)
    hybrid = {}
    if args.outer > 1:
        hybrid = {"dp_outer_dim": "outer", "hybrid_fsdp_group": mesh["outer", "dp"]._flatten("all").get_group()}
    model, optimizer = fully_shard(
        model,
        optimizer,
        device_mesh=mesh,
        dp_shard_dim="dp",
        tp_dim="tp",
        fsdp_unit_modules=[Block],
        zero_dp_strategy=args.strategy,
        outer_dp_sharding_strategy=args.outer_strategy,
        device=torch.device("cpu"),
        preserve_fp32_weights=not args.no_masters,
        grad_reduce_in_fp32=True,
        overlap_grad_reduce=args.sync != "after",
        sync_model_each_microbatch=args.sync == "each",
        preproc_state_dict_for_dcp_ckpt=False,
        **hybrid,
    )
    return without_premultiplied_sums(model), optimizer


def texts_of(step: int, accumulate: int, rank: int, ranks: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(10 + step)
    text = torch.randint(VOCABULARY, (accumulate, BATCH, LENGTH + 1), generator=generator)
    return [part.chunk(ranks)[rank] for part in text]


def clip(args: argparse.Namespace, parameters: list[nn.Parameter]) -> None:
    """torch's own function reduces gradient by gradient, and some ranks have no rows of a parameter."""
    own = [getattr(p.grad, "_local_tensor", p.grad) for p in parameters if p.grad is not None]
    total = nn.utils.get_total_norm(own).square()
    if args.strategy not in ("", "no_shard"):
        dist.all_reduce(total)
        if args.outer_strategy == "no_shard":
            total /= args.outer  # every replica has them
    for gradient in own:
        gradient.mul_(min(1.0, args.clip / (float(total.sqrt()) + 1e-6)))


def update(args: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    own = {}
    if args.strategy and args.sync == "after" and args.clip > 0:  # else the optimizer's step reduces gradients
        model.finish_grad_sync()
        own = {"sync_grad_before_optimizer_step": False}
    if args.clip > 0:
        clip(args, list(model.parameters()))
    optimizer.step(**own)
    for group in optimizer.param_groups if args.decay else ():
        group["lr"] /= 2
    optimizer.zero_grad()


def train(args: argparse.Namespace) -> None:
    kind = TYPES[ttrace.precision(args.precision)]  # ttrace
    torch.manual_seed(0)
    model = Model(args.tied, args.head_first).to(kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rank, ranks = 0, 1
    if args.strategy:
        stand_in()
        start()
        rank, ranks = dist.get_rank(), dist.get_world_size()
        model, optimizer = sharded(args, model, optimizer)
    steps = "optimizer" if args.follow else "program"
    tracer = ttrace.attach(model, optimizer=optimizer, steps=steps)  # ttrace
    for number in range(args.steps):
        with contextlib.nullcontext() if args.follow else tracer.step(number):  # ttrace
            for index, text in enumerate(texts_of(number, args.accumulate, rank, ranks)):
                if args.strategy and args.sync == "last":
                    model.set_model_auto_sync(index == args.accumulate - 1)
                losses = F.cross_entropy(model(text[:, :-1]).transpose(1, 2), text[:, 1:], reduction="none")
                tracer.loss(losses)  # ttrace
                loss = losses.mean() / args.accumulate
                loss.backward()
            update(args, model, optimizer)
        print(f"rank {rank} step {number} loss {loss.item():.9g} {checksum(model):.17g}", flush=True)
    if args.strategy:
        dist.destroy_process_group()


def checksum(model: nn.Module) -> float:
    """Of the bits of what this rank updates."""
    parts = [getattr(p, "_local_tensor", p).detach().double() for p in model.parameters()]
    return float(sum(part.sum() * (i + 1) for i, part in enumerate(parts)))


def main() -> None:
    train(arguments())


if __name__ == "__main__":
    main()
