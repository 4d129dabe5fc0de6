# Lightning-AI/pytorch-lightning#9788 (2021-10-01): DeepSpeed's engine got the scheduler and steps it, and so does the loop that calls the
# engine, so that the rate moves twice as fast. Right: only the engine steps it. A loop of one's own instead of Lightning's; the first two
# steps are traced. Needs deepspeed.
import os
import sys
import torch
import torch.nn.functional as F
from torch import nn
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 12, 3)
        self.fc1, self.fc2 = nn.Linear(12 * 5 * 5, 32), nn.Linear(32, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x.flatten(1)))), 1)


torch.manual_seed(14)
net = Net().to(KIND)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min((n + 1) / 5, 1.0))
pictures, digits = torch.rand(3, 8, 1, 14, 14).to(KIND), torch.randint(10, (3, 8))
if ranks > 1:
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # compiles nothing
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    engine, optimizer, _, scheduler = deepspeed.initialize(model=net, optimizer=optimizer, lr_scheduler=scheduler, config={
        "train_micro_batch_size_per_gpu": 8 // ranks, "zero_optimization": {"stage": 2}, "zero_allow_untested_optimizer": True,
        "gradient_clipping": 0.0})
    tracer = ttrace.attach(engine)
else:
    tracer = ttrace.attach(net, optimizer=optimizer)

for step, (picture, digit) in enumerate(zip(pictures, digits)):
    rate = optimizer.param_groups[0]["lr"]
    with tracer.step(step):
        if ranks > 1:
            loss = F.nll_loss(engine(picture.chunk(ranks)[rank]), digit.chunk(ranks)[rank])
            engine.backward(loss)
            engine.step()
        else:
            loss = F.nll_loss(net(picture), digit)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if ranks == 1 or "--bug" in sys.argv:
            scheduler.step()
    print(f"rank {rank} step {step}: loss {loss.item():.6f} rate {rate:.6f} {net.fc1.weight.double().norm().item():.7f}", flush=True)
if ranks > 1:
    torch.distributed.destroy_process_group()
