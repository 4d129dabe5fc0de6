"""A small language model that Lightning's Trainer trains, or a module of Lightning that steps its optimizer itself (--manual).

    ttrace check --reference "python train.py" --candidate "torchrun --nproc-per-node 2 train.py"

Lightning deals the samples out to the ranks by torch's DistributedSampler, which shuffles them. So the one process of the
reference has such a sampler, too.
"""

from __future__ import annotations

import argparse
import os

import lightning.pytorch as pl
import torch
import ttrace  # ttrace
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

RANKS = int(os.environ.get("WORLD_SIZE", "1"))
VOCABULARY, HIDDEN, LAYERS, LENGTH, BATCH = 64, 32, 2, 12, 8
# Lightning's names, by what parameters are kept in and whether operators round to BF16.
KINDS = {"f64": "64-true", "f32": "32-true", "bf16": "bf16-true"}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Task(pl.LightningModule):
    """Its Trainer calls the optimizer, and averages the gradients of the batches that it accumulates."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.args = args
        self.tokens, self.head = nn.Embedding(VOCABULARY, HIDDEN), nn.Linear(HIDDEN, VOCABULARY)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.tokens(tokens)))

    def compute_loss(self, text: torch.Tensor) -> torch.Tensor:
        tokens = text[:, :-1]
        logits = self.head(self.blocks(self.tokens(tokens))) if self.args.parts else self(tokens)
        return F.cross_entropy(logits.float().flatten(0, 1), text[:, 1:].flatten())

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        loss = self.compute_loss(batch[0])
        print(f"rank {self.global_rank} batch {index} loss {loss.item():.9g} {checksum(self):.17g}", flush=True)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class ManualTask(Task):
    """It calls the optimizer itself, after as many batches as it wants."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args)
        self.automatic_optimization = False

    def training_step(self, batch: list[torch.Tensor], index: int) -> None:
        optimizer, count = self.optimizers(), self.args.accumulate
        is_last = (index + 1) % count == 0
        if index % count == 0:
            optimizer.zero_grad()
        with optimizer.toggle_model(sync_grad=is_last):
            self.manual_backward(super().training_step(batch, index) / count)
        if is_last:
            if self.args.clip:
                self.clip_gradients(optimizer, self.args.clip, "norm")
            optimizer.step()
            self.lr_schedulers().step()


def checksum(model: nn.Module) -> float:
    """Of the parameters' bits, so that two runs with the same one have the same bits."""
    return float(sum((p.detach().double() * (i + 1)).sum() for i, p in enumerate(model.parameters())))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--manual", action="store_true", help="the module calls the optimizer itself")
    add("--parts", action="store_true", help="the training step calls modules, and never the model itself")
    add("--accumulate", type=int, default=1, help="batches of a step")
    add("--clip", type=float, default=0.0, help="largest norm of the gradients; 0: not clipped")
    add("--mixed", action="store_true", help="parameters in F32, operators under autocast in BF16")
    add("--own-samples", action="store_true", help="the program divides the samples itself, in their own order")
    add("--precision", default="f32", choices=sorted(KINDS))
    add("--steps", type=int, default=2)
    return parser.parse_args()


def loader_of(args: argparse.Namespace) -> DataLoader:
    generator = torch.Generator().manual_seed(1)
    text = torch.randint(VOCABULARY, (args.steps * args.accumulate, BATCH, LENGTH + 1), generator=generator)
    if args.own_samples:
        text = text.chunk(RANKS, dim=1)[int(os.environ.get("RANK", "0"))]
    samples = TensorDataset(text.flatten(0, 1))
    sampler = DistributedSampler(samples, 1, 0) if RANKS == 1 and not args.own_samples else None  # else Lightning's own
    return DataLoader(samples, batch_size=BATCH // RANKS, sampler=sampler)


def trainer_of(args: argparse.Namespace, kind: str) -> pl.Trainer:
    of_trainer = {} if args.manual else {"accumulate_grad_batches": args.accumulate, "gradient_clip_val": args.clip or None}
    return pl.Trainer(
        accelerator="cpu",
        devices=RANKS,
        strategy=DDPStrategy(process_group_backend="gloo") if RANKS > 1 else "auto",
        precision="bf16-mixed" if args.mixed and kind == "f32" else KINDS[kind],
        use_distributed_sampler=not args.own_samples,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **of_trainer,
    )


def main() -> None:
    args = arguments()
    kind = ttrace.precision(args.precision)  # ttrace
    torch.manual_seed(0)
    task = ManualTask(args) if args.manual else Task(args)
    trainer = trainer_of(args, kind)
    ttrace.attach_trainer(trainer)  # ttrace
    trainer.fit(task, loader_of(args))


if __name__ == "__main__":
    main()
