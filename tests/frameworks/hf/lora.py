"""LoRA by peft in a plain loop: the model is frozen, and adapters learn."""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
import ttrace  # ttrace
from models import TYPES, batch_of, build, is_distributed, losses_of, part_of, start_processes
from peft import LoraConfig, get_peft_model
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--model", default="llama")
    add("--ddp", action="store_true")
    add("--fsdp", action="store_true")
    add("--precision", default="f32", choices=sorted(TYPES))
    add("--steps", type=int, default=2)
    return parser.parse_args()


def adapted(name: str, kind: torch.dtype) -> torch.nn.Module:
    config = LoraConfig(
        r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False
    )
    model = build(name, kind)
    torch.manual_seed(2)
    return get_peft_model(model, config, autocast_adapter_dtype=False)


def train(args: argparse.Namespace) -> None:
    kind = TYPES[ttrace.precision(args.precision)]  # ttrace
    start_processes()
    model = adapted(args.model, kind)
    model.train()
    if args.fsdp:
        for layer in (*model.base_model.model.model.layers, model):
            fully_shard(layer)
    if args.ddp:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    tracer = ttrace.attach(model, optimizer=optimizer)  # ttrace
    shards, shard = (dist.get_world_size(), dist.get_rank()) if is_distributed() else (1, 0)
    for number in range(args.steps):
        batch = batch_of(args.model, number, kind)
        with tracer.step(number) as step:  # ttrace
            losses = losses_of(args.model, model, part_of(batch, shard, shards))
            step.loss(losses)  # ttrace
            losses.mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"step {number} loss {losses.mean().item():.9g}", flush=True)
    if is_distributed():
        dist.destroy_process_group()


def main() -> None:
    train(arguments())


if __name__ == "__main__":
    main()
