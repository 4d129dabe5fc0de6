# Lightning-AI/pytorch-lightning#18086 (2023-07-14): with manual optimization and DDPStrategy(static_graph=True) the ranks' gradients
# are not reduced in the first step, because DDP leaves the first iteration of a static graph to a hook at the end of its forward, which
# Lightning has left by then. Mended in Lightning by the strategy's post_backward; the wrong variant has a strategy without it. Right:
# all steps are reduced. Needs lightning.
import os
import sys
import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Strategy(DDPStrategy):
    def post_backward(self, closure_loss):
        if "--bug" not in sys.argv:
            super().post_backward(closure_loss)


class Denoiser(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.encode = nn.Sequential(nn.Conv2d(1, 6, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(6, 10, 3, stride=2, padding=1))
        self.decode = nn.Sequential(nn.ConvTranspose2d(10, 6, 2, stride=2), nn.ReLU(), nn.ConvTranspose2d(6, 1, 2, stride=2))

    def forward(self, pictures):
        return self.decode(torch.relu(self.encode(pictures)))

    def training_step(self, batch, number):
        noisy, clean = batch
        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss = nn.functional.l1_loss(self(noisy), clean)
        self.manual_backward(loss)
        optimizer.step()
        norm = sum(p.double().square().sum() for p in self.parameters()).item()
        print(f"rank {self.global_rank} step {number}: loss {loss.item():.6f} weights {norm:.7f}", flush=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5, momentum=0.9, nesterov=True)


class Attach(pl.Callback):
    def on_train_start(self, trainer, module):
        ttrace.attach(trainer.strategy.model, optimizer=trainer.optimizers[0], steps="optimizer")


torch.manual_seed(5)
clean = torch.rand(24, 1, 12, 12)
noisy = clean + 0.2 * torch.randn(24, 1, 12, 12)
module = Denoiser().to(KIND)
trainer = pl.Trainer(
    max_epochs=1, accelerator="cpu", devices=ranks, logger=False, callbacks=[Attach()],
    strategy=Strategy(static_graph=True, process_group_backend="gloo") if ranks > 1 else "auto",
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
pictures = TensorDataset(noisy.to(KIND), clean.to(KIND))
sampler = DistributedSampler(pictures, ranks, rank, shuffle=False)
trainer.fit(module, DataLoader(pictures, batch_size=8 // ranks, sampler=sampler))
