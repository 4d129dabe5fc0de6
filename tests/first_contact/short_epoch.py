# Lightning-AI/pytorch-lightning#21808 (2026-07-06): an epoch has fewer batches than accumulate_grad_batches, so that the Trainer steps
# at its last batch, and each loss has been divided by a number of batches that never came. Two ranks have three batches of two rows an
# epoch; the reference has the twelve rows as one batch. Right: as many batches are accumulated as an epoch has. Needs lightning.
import os
import sys
import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
WORLD = int(os.environ.get("WORLD_SIZE", "1"))


class Clicks(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.user, self.item = nn.Embedding(40, 8), nn.Embedding(90, 8)
        self.deep = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, pairs):
        user, item = self.user(pairs[:, 0]), self.item(pairs[:, 1])
        return self.deep(torch.cat([user, item], -1))[:, 0] + (user * item).sum(-1)

    def training_step(self, batch, number):
        pairs, clicked = batch
        return F.binary_cross_entropy_with_logits(self(pairs), clicked)

    def configure_optimizers(self):
        return torch.optim.Adagrad(self.parameters(), lr=0.05)

    def on_before_optimizer_step(self, optimizer):
        norm = torch.stack([p.grad.double().norm() for p in self.parameters()]).norm()
        print(f"rank {self.global_rank} step {self.global_step}: gradients {norm.item():.7f}", flush=True)


class Trace(pl.Callback):
    def on_train_start(self, trainer, module):
        ttrace.attach(trainer.strategy.model, optimizer=trainer.optimizers[0], steps="optimizer")


g = torch.Generator().manual_seed(2)
pairs = torch.stack([torch.randint(40, (12,), generator=g), torch.randint(90, (12,), generator=g)], 1)
clicked = torch.randint(2, (12,), generator=g).to(KIND)
torch.manual_seed(90)
model = Clicks().to(KIND)
accumulate, rows, strategy = 1, 12, "auto"
if WORLD > 1:
    accumulate, rows, strategy = 3, 2, DDPStrategy(process_group_backend="gloo")
    if "--bug" in sys.argv:
        accumulate = 4
trainer = pl.Trainer(
    max_epochs=2, accumulate_grad_batches=accumulate, accelerator="cpu", devices=WORLD, strategy=strategy, callbacks=[Trace()],
    logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(model, torch.utils.data.DataLoader(torch.utils.data.TensorDataset(pairs, clicked), batch_size=rows))
