"""A Trainer of transformers that gets its callback by the name of the class, as a file that configures it would give it: two
micro-batches per step, in DDP under torchrun.

--attach: attaches to the trainer as well, whose callback is there already. --wrong: gradients are summed, and not averaged.
"""

from __future__ import annotations

import argparse
import importlib
import os
import tempfile

import torch
import torch.distributed as dist
import ttrace
from torch import nn
from transformers import Trainer, TrainingArguments

NAME = "ttrace.callbacks.TransformersCallback"
RANKS, MICROBATCHES, STEPS, BATCH = int(os.environ.get("WORLD_SIZE", "1")), 2, 2, 8


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 3))

    def forward(self, x, labels):
        logits = self.net(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class SummingTrainer(Trainer):
    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        for parameter in self.model.parameters() if self.accelerator.sync_gradients else ():
            parameter.grad *= RANKS
        return loss


def callback_named(name: str):
    module, _, cls = name.rpartition(".")
    return getattr(importlib.import_module(module), cls)()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--attach", action="store_true")
    parser.add_argument("--wrong", action="store_true")
    args = parser.parse_args()
    if RANKS > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    kind = ttrace.dtype(torch.float32)
    samples = [{"x": torch.randn(8, dtype=kind), "labels": i % 3} for i in range(STEPS * BATCH)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, use_cpu=True, max_steps=STEPS, per_device_train_batch_size=BATCH // MICROBATCHES // RANKS,
            gradient_accumulation_steps=MICROBATCHES, save_strategy="no", report_to=[], disable_tqdm=True, max_grad_norm=0,
        )  # fmt: skip
        trainer = (SummingTrainer if args.wrong else Trainer)(
            Model().to(kind), arguments, train_dataset=samples, callbacks=[callback_named(NAME)]
        )
        if args.attach:
            ttrace.attach_trainer(trainer)
        trainer.train()
    if RANKS > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
