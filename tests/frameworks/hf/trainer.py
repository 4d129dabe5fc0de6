"""The Trainer of transformers, which owns the loop: two micro-batches per step, of samples of unequal lengths. Under
torchrun it wraps the model in DDP, unless --fsdp has cut it."""

from __future__ import annotations

import argparse
import tempfile

import torch.distributed as dist
import ttrace  # ttrace
from models import BATCH, TYPES, batch_of, build, is_distributed, start_processes
from transformers import Trainer, TrainingArguments
from transformers.distributed import DistributedConfig

ACCUMULATED = 2


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--model", default="llama")
    add("--fsdp", action="store_true", help="FSDP2 by transformers; accelerate has none for CPUs")
    add("--clip", type=float, default=0.0, help="largest norm of the gradients; 0: not clipped")
    add("--precision", default="f32", choices=sorted(TYPES))
    add("--steps", type=int, default=2)
    return parser.parse_args()


def samples(name: str, steps: int, kind) -> list[dict]:
    batches = [batch_of(name, number, kind, is_padded=True) for number in range(steps)]
    return [{key: tensor[i] for key, tensor in batch.items()} for batch in batches for i in range(BATCH)]


def train(args: argparse.Namespace) -> None:
    kind = TYPES[ttrace.precision(args.precision)]  # ttrace
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(args, kind, folder)
        ttrace.attach_trainer(trainer)  # ttrace
        trainer.train()
    if dist.is_initialized():
        dist.destroy_process_group()


def make_trainer(args: argparse.Namespace, kind, folder: str) -> Trainer:
    start_processes()
    ranks = dist.get_world_size() if is_distributed() else 1
    config = DistributedConfig(fsdp_size=ranks) if args.fsdp else None
    return Trainer(
        model=build(args.model, kind, attention="sdpa", distributed=config),
        args=TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            max_steps=args.steps,
            per_device_train_batch_size=BATCH // ACCUMULATED // ranks,
            gradient_accumulation_steps=ACCUMULATED,
            max_grad_norm=args.clip,
            learning_rate=1e-3,
            lr_scheduler_type="constant",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=samples(args.model, args.steps, kind),
    )


def main() -> None:
    train(arguments())


if __name__ == "__main__":
    main()
