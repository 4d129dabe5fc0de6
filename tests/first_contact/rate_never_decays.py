# OHF-Voice/piper1-gpl#179 (2026-02-17): with manual optimization Lightning steps no scheduler, and the program does not either, so that
# the rate stays what it was in the first epoch. Right: the module steps its scheduler when an epoch ends. The second step is traced, which
# is that of the second epoch. Needs lightning.
import os
import sys
import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Vocoder(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.raise_ = nn.ConvTranspose1d(8, 12, 4, stride=4)
        self.blocks = nn.ModuleList(nn.Conv1d(12, 12, 3, padding=2**i, dilation=2**i) for i in range(3))
        self.wave = nn.Conv1d(12, 1, 5, padding=2)

    def forward(self, mel):
        x = self.raise_(mel)
        for block in self.blocks:
            x = x + F.leaky_relu(block(x), 0.1)
        return torch.tanh(self.wave(x))

    def training_step(self, batch, number):
        mel, sound = batch
        optimizer = self.optimizers()
        made = self(mel)
        envelope = F.avg_pool1d(made.square(), 8), F.avg_pool1d(sound.square(), 8)
        loss = F.l1_loss(made, sound) + 5 * F.mse_loss(*envelope)
        optimizer.zero_grad()
        self.manual_backward(loss)
        self.clip_gradients(optimizer, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
        optimizer.step()
        rate = optimizer.param_groups[0]["lr"]
        size = sum(p.double().square().sum() for p in self.parameters()).item()
        print(f"rank {RANK} epoch {self.current_epoch}: {loss.item():.6f} rate {rate:g} {size:.7f}", flush=True)

    def on_train_epoch_end(self):
        if RANKS == 1 or "--bug" not in sys.argv:
            self.lr_schedulers().step()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=4e-3, betas=(0.8, 0.99))
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]


class Trace(pl.Callback):
    def on_train_start(self, trainer, module):
        ttrace.attach(trainer.strategy.model, optimizer=trainer.optimizers[0], steps="optimizer")


torch.manual_seed(22)
sounds = TensorDataset(torch.randn(8, 8, 16).to(KIND), torch.rand(8, 1, 64).to(KIND) * 2 - 1)
module = Vocoder().to(KIND)
trainer = pl.Trainer(
    max_epochs=2, accelerator="cpu", devices=RANKS, logger=False, callbacks=[Trace()],
    strategy=DDPStrategy(process_group_backend="gloo") if RANKS > 1 else "auto",
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(module, DataLoader(sounds, batch_size=8 // RANKS, sampler=DistributedSampler(sounds, RANKS, RANK, shuffle=False)))
