"""A model of Hugging Face that only goes forward, by transformers (alone or with its tensor parallelism) or by a
second implementation of the model."""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
import ttrace  # ttrace
from models import TYPES, batch_of, build, is_distributed, start_processes
from own_llama import OwnLlama
from transformers.distributed import DistributedConfig


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--model", default="llama")
    add("--own", action="store_true", help="the second implementation")
    add("--tp", type=int, default=1)
    add("--precision", default="f32", choices=sorted(TYPES))
    add("--steps", type=int, default=2)
    return parser.parse_args()


def run(args: argparse.Namespace) -> None:
    kind = TYPES[ttrace.precision(args.precision)]  # ttrace
    start_processes()
    config = DistributedConfig(tp_size=args.tp) if args.tp > 1 else None
    model = OwnLlama().to(kind) if args.own else build(args.model, kind, attention="sdpa", distributed=config)
    model.eval()
    tracer = ttrace.attach(model, describe={"class": args.model})  # ttrace
    for number in range(args.steps):
        tokens = batch_of(args.model, number, kind)["input_ids"]
        with tracer.step(number), torch.no_grad():  # ttrace
            logits = model(tokens).logits
        print(f"step {number} logits {logits.float().norm().item():.9g}", flush=True)
    if is_distributed():
        dist.destroy_process_group()


def main() -> None:
    run(arguments())


if __name__ == "__main__":
    main()
