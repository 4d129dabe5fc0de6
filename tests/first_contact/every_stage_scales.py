# deepspeedai/DeepSpeed#8154 (2026-07-18): every stage of a PipelineModule divides the gradient of its output by the number of
# micro-batches, and the stages before the last one get a gradient that has been divided before. Right: the last stage alone divides.
# Planted in the first stage's last layer. The reference has one stage on one rank. Needs deepspeed.
import os
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import deepspeed
import torch
import torch.distributed as dist
from torch import nn
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
RANK, STAGES, ACCUMULATE, BATCH = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")), 3, 4


class Residual(nn.Module):
    def __init__(self, channels, last_of_stage=False):
        super().__init__()
        self.one, self.two = nn.Conv1d(channels, channels, 3, padding=1), nn.Conv1d(channels, channels, 3, padding=1)
        self.scale = last_of_stage and STAGES > 1 and "--bug" in sys.argv

    def forward(self, x):
        x = x + self.two(torch.relu(self.one(x)))
        if self.scale:
            x.register_hook(lambda gradient: gradient / ACCUMULATE)
        return x


class Pool(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.out = nn.Linear(channels, classes)

    def forward(self, x):
        return self.out(x.amax(-1))


def batches(seed):
    g = torch.Generator().manual_seed(seed)
    for _ in range(ACCUMULATE):
        yield torch.randn(BATCH, 3, 18, generator=g).to(KIND), torch.randint(6, (BATCH,), generator=g)


deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # compiles nothing
if STAGES == 1:
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="localhost", MASTER_PORT="0")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
torch.manual_seed(16)
layers = [nn.Conv1d(3, 10, 5), Residual(10, last_of_stage=True), Residual(10), Pool(10, 6)]
model = deepspeed.pipe.PipelineModule(
    [layer.to(KIND) for layer in layers], num_stages=STAGES, loss_fn=nn.CrossEntropyLoss(), partition_method="uniform")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.8)
engine = deepspeed.initialize(model=model, optimizer=optimizer, config={
    "train_micro_batch_size_per_gpu": BATCH,
    "gradient_accumulation_steps": ACCUMULATE,
    "zero_allow_untested_optimizer": True,
    "gradient_clipping": 0.0,
})[0]
tracer = ttrace.attach(engine)
for number in range(2):
    with tracer.step(number):
        loss = engine.train_batch(batches(number))
    sizes = {name: round(p.double().norm().item(), 7) for name, p in model.named_parameters() if p.dim() > 1}
    print(f"rank {RANK} step {number}: loss {loss.item():.6f} {sizes}", flush=True)
dist.destroy_process_group()
