"""A plain loop over a model of Hugging Face. --ddp and --fsdp share the samples of a batch among ranks; --tp N
uses the plan that transformers has for the model, alone or under its FSDP2.

    ttrace check --reference "python train.py --model qwen3" \\
                 --candidate "torchrun --nproc-per-node 4 train.py --model qwen3 --fsdp --tp 2"
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
import ttrace  # ttrace
from models import MODELS, TYPES, batch_of, build, is_distributed, losses_of, part_of, start_processes
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from transformers.distributed import DistributedConfig


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--model", default="llama", choices=MODELS)
    add("--ddp", action="store_true")
    add("--fsdp", action="store_true")
    add("--tp", type=int, default=1)
    add("--kv-heads", type=int, default=2)
    add("--attention", default="eager")
    add("--pad", action="store_true", help="samples of unequal lengths, padded on the left")
    add("--checkpointing", action="store_true")
    add("--frozen", action="store_true", help="embeddings and the first layer do not learn")
    add("--scaler", type=float, default=0.0, help="FP16 by autocast, with this scale of the loss")
    add("--clip", type=float, default=0.0, help="largest norm of the gradients; 0: not clipped")
    add("--precision", default="f32", choices=sorted(TYPES))
    add("--steps", type=int, default=2)
    return parser.parse_args()


def parallel_model(args: argparse.Namespace, kind: torch.dtype) -> torch.nn.Module:
    config = None
    if args.tp > 1:
        shards = dist.get_world_size() // args.tp
        config = DistributedConfig(tp_size=args.tp, fsdp_size=shards)
    model = build(args.model, kind, args.kv_heads, args.attention, config)
    model.train()
    if args.checkpointing:
        model.gradient_checkpointing_enable()
    if args.frozen:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("embed" not in name and "layers.0." not in name)
    if args.fsdp and args.tp == 1:
        for module in (*layers_of(model), model):
            fully_shard(module)
    if args.ddp:
        model = DistributedDataParallel(model)
    return model


def layers_of(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The modules of the outermost lists."""
    found: list[torch.nn.Module] = []
    for child in model.children():
        found += list(child) if isinstance(child, torch.nn.ModuleList) else layers_of(child)
    return found


def train(args: argparse.Namespace) -> None:
    kind = TYPES[ttrace.precision(args.precision)]  # ttrace
    start_processes()
    model = parallel_model(args, kind)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=args.scaler or 1.0, enabled=args.scaler > 0)
    tracer = ttrace.attach(model, optimizer=optimizer, scaler=scaler)  # ttrace
    shards = dist.get_world_size() // args.tp if is_distributed() else 1
    shard = dist.get_rank() // args.tp if is_distributed() else 0
    for number in range(args.steps):
        batch = batch_of(args.model, number, kind, args.pad)
        count = (batch["labels"] != -100).sum()
        with tracer.step(number) as step:  # ttrace
            with torch.autocast("cpu", torch.float16, enabled=args.scaler > 0):
                losses = losses_of(args.model, model, part_of(batch, shard, shards))
            step.loss(losses)  # ttrace
            loss = losses.sum() / count * shards
            scaler.scale(loss).backward()
            if args.clip > 0:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        print(f"step {number} loss {loss.item():.9g}", flush=True)
    if is_distributed():
        dist.destroy_process_group()


def main() -> None:
    train(arguments())


if __name__ == "__main__":
    main()
