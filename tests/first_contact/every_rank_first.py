# Lightning-AI/litData#250 (2024-07-22): under the Trainer with DDP a streaming dataset takes every rank for the first one, because it asks
# which rank it is before there are ranks, so that all of them train on the same samples. Right: it asks when it is read. Needs lightning.
import os
import sys
import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
WORLD = int(os.environ.get("WORLD_SIZE", "1"))


def where():
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


class Stream(IterableDataset):
    def __init__(self, length):
        self.length = length
        self.place = where()

    def __iter__(self):
        rank, ranks = self.place if "--bug" in sys.argv else where()
        for index in range(rank, self.length, ranks):
            g = torch.Generator().manual_seed(1000 + index)
            letters = torch.randint(1, 30, (12,), generator=g)
            yield letters, (letters[:6].sum() > letters[6:].sum()).long()


class Sentiment(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(30, 12, padding_idx=0)
        self.conv = nn.Conv1d(12, 16, 3, padding=1)
        self.out = nn.Linear(16, 2)

    def forward(self, letters):
        x = torch.relu(self.conv(self.letters(letters).transpose(1, 2)))
        return self.out(x.amax(-1))

    def training_step(self, batch, number):
        letters, label = batch
        loss = nn.functional.cross_entropy(self(letters), label)
        print(f"rank {self.global_rank} step {number}: loss {loss.item():.6f} {letters.sum(1).tolist()}", flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.NAdam(self.parameters(), lr=1e-2)


class Trace(pl.Callback):
    def on_train_start(self, trainer, module):
        ttrace.attach(trainer.strategy.model, optimizer=trainer.optimizers[0], steps="optimizer")


torch.manual_seed(25)
module = Sentiment().to(KIND)
stream = Stream(16)
trainer = pl.Trainer(
    max_steps=2, accelerator="cpu", devices=WORLD, logger=False, callbacks=[Trace()],
    strategy=DDPStrategy(process_group_backend="gloo") if WORLD > 1 else "auto",
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(module, DataLoader(stream, batch_size=8 // WORLD))
