"""A module that Lightning trains, in one process or under DDP, whose step calls a module of it.

--attach: where TTrace is attached: to the trainer, by a callback, in on_train_start to the wrapper or to the module in it, or too
early. --package: the name by which the program knows Lightning.
--two: manual optimization with two optimizers. --alternate: each of them with a forward and backward of its own. --wrong: gradients are summed, and not averaged. --shuffled: Lightning's own
sampler, which shuffles.
"""

from __future__ import annotations

import argparse
import importlib
import os

import torch
import ttrace
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--attach", choices=["trainer", "callback", "wrapper", "module", "before", "setup"], default="trainer")
parser.add_argument("--package", choices=["lightning.pytorch", "pytorch_lightning"], default="lightning.pytorch")
parser.add_argument("--two", action="store_true")
parser.add_argument("--alternate", action="store_true")
parser.add_argument("--wrong", action="store_true")
parser.add_argument("--shuffled", action="store_true")
ARGS = parser.parse_args()
pl = importlib.import_module(ARGS.package)
DDPStrategy = importlib.import_module(f"{ARGS.package}.strategies").DDPStrategy
PRECISION = {"f32": "32-true", "f64": "64-true"}[ttrace.precision("f32")]
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Task(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 3))
        self.other = nn.Linear(3, 3)
        self.automatic_optimization = not ARGS.two

    def training_step(self, batch, index):
        if not ARGS.two:
            return self.loss_of(batch)
        for turn in [[optimizer] for optimizer in self.optimizers()] if ARGS.alternate else [self.optimizers()]:
            self.zero_grad()
            self.manual_backward(self.loss_of(batch))
            for optimizer in turn:
                optimizer.step()
        return None

    def loss_of(self, batch):
        return nn.functional.cross_entropy(self.other(self.net(batch[0])), batch[1])

    def on_after_backward(self):
        for parameter in self.parameters() if ARGS.wrong else ():
            parameter.grad *= RANKS

    def configure_optimizers(self):
        parts = [self.net, self.other] if ARGS.two else [self]
        return [torch.optim.AdamW(part.parameters(), lr=1e-2) for part in parts]


class Attach(pl.Callback):
    def setup(self, trainer, pl_module, stage):
        if ARGS.attach == "setup":
            ttrace.attach(pl_module, steps="optimizer")

    def on_train_start(self, trainer, pl_module):
        if ARGS.attach in ("wrapper", "module"):
            model = pl_module if ARGS.attach == "module" else trainer.strategy.model
            ttrace.attach(model, optimizer=trainer.optimizers[0], steps="optimizer")


torch.manual_seed(0)
x, labels = torch.randn(16, 8), torch.arange(16) % 3
if not ARGS.shuffled:  # every rank has its part of both batches
    x, labels = (t.unflatten(0, (2, RANKS, -1))[:, RANK].flatten(0, 1) for t in (x, labels))
task = Task()
trainer = pl.Trainer(
    max_epochs=1, accelerator="cpu", devices=RANKS, logger=False, enable_checkpointing=False, precision=PRECISION,
    enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=ARGS.shuffled,
    callbacks=[ttrace.callbacks.LightningCallback() if ARGS.attach == "callback" else Attach()],
    strategy=DDPStrategy(process_group_backend="gloo") if RANKS > 1 else "auto",
)  # fmt: skip
if ARGS.attach == "trainer":
    ttrace.attach_trainer(trainer)
if ARGS.attach == "before":
    ttrace.attach(task, steps="optimizer")
trainer.fit(task, DataLoader(TensorDataset(x, labels), batch_size=8 // RANKS))
