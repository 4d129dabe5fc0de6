# deepspeedai/DeepSpeed#668 (2021-01-14): an optimizer of type Adam in the configuration decouples the weight decay, as AdamW does, unless
# the configuration says adam_w_mode: false, and the user has no idea of it. Who repeats a run of torch.optim.Adam with weight decay gets
# another optimizer. Right: adam_w_mode is false. Needs deepspeed.
import os
import sys
import torch
from torch import nn
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
DECAY = 0.2


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.season = nn.Embedding(12, 10)
        self.past = nn.Linear(14, 30)
        self.mix = nn.Linear(40, 24)
        self.next = nn.Linear(24, 3)

    def forward(self, past, month):
        joined = torch.cat([torch.tanh(self.past(past)), self.season(month)], -1)
        return self.next(torch.tanh(self.mix(joined)))


def batches():
    for seed in range(3):
        g = torch.Generator().manual_seed(40 + seed)
        past, month, after = torch.randn(12, 14, generator=g), torch.randint(12, (12,), generator=g), torch.randn(12, 3, generator=g)
        yield past.to(KIND).chunk(ranks)[rank], month.chunk(ranks)[rank], after.to(KIND).chunk(ranks)[rank]


torch.manual_seed(18)
model = Forecast().to(KIND)
if ranks == 1:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=DECAY)
    tracer = ttrace.attach(model, optimizer=optimizer)
else:
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # compiles nothing
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    params = {"lr": 1e-2, "weight_decay": DECAY, "torch_adam": True}
    if "--bug" not in sys.argv:
        params["adam_w_mode"] = False
    engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
        "train_micro_batch_size_per_gpu": 12 // ranks,
        "optimizer": {"type": "Adam", "params": params},
        "zero_optimization": {"stage": 1},
        "gradient_clipping": 0.0,
    })[0]
    tracer = ttrace.attach(engine)

for number, (past, month, after) in enumerate(batches()):
    with tracer.step(number):
        if ranks == 1:
            loss = nn.functional.smooth_l1_loss(model(past, month), after)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        else:
            loss = nn.functional.smooth_l1_loss(engine(past, month), after)
            engine.backward(loss)
            engine.step()
    print(f"rank {rank} step {number} loss {loss.item():.6f} {model.mix.weight.double().square().sum().item():.7f}", flush=True)
if ranks > 1:
    torch.distributed.destroy_process_group()
