"""A loop of accelerate, which prepares model, optimizer and data and accumulates gradients over micro-batches."""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
import ttrace  # ttrace
from accelerate import Accelerator
from models import BATCH, TYPES, batch_of, build, losses_of

ACCUMULATED = 2


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--model", default="qwen3")
    add("--clip", type=float, default=0.0)
    add("--precision", default="f32", choices=sorted(TYPES))
    add("--steps", type=int, default=2)
    return parser.parse_args()


def samples(name: str, steps: int, kind: torch.dtype) -> list[dict]:
    batches = [batch_of(name, number, kind, is_padded=True) for number in range(steps)]
    return [{key: tensor[i] for key, tensor in batch.items()} for batch in batches for i in range(BATCH)]


def train(args: argparse.Namespace) -> None:
    kind = TYPES[ttrace.precision(args.precision)]  # ttrace
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATED)
    model = build(args.model, kind, attention="sdpa")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    size = BATCH // ACCUMULATED // accelerator.num_processes
    loader = torch.utils.data.DataLoader(samples(args.model, args.steps, kind), batch_size=size)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    tracer = ttrace.attach(model, optimizer=optimizer, steps="optimizer")  # ttrace
    model.train()
    for batch in loader:
        with accelerator.accumulate(model):
            losses = losses_of(args.model, model, batch)
            tracer.loss(losses)  # ttrace
            loss = losses.sum() / (BATCH // ACCUMULATED) * accelerator.num_processes
            accelerator.backward(loss)
            if args.clip > 0 and accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            optimizer.zero_grad()
        print(f"loss {loss.item():.9g}", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


def main() -> None:
    train(arguments())


if __name__ == "__main__":
    main()
