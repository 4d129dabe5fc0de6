# kohya-ss/sd-scripts#989 (2023-12-06): a network of low-rank adapters is applied to a finished model by replacing the forward of its
# linears. The network is in DDP, but nobody calls it, because the model calls the adapters, so that their gradients stay each rank's own.
# Right, as the report mends it: the program averages them after the backward. The model itself is frozen.
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Denoise(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.enter, self.time = nn.Linear(10, width), nn.Linear(1, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU()) for _ in range(3))
        self.leave = nn.Linear(width, 10)

    def forward(self, noisy, time):
        x = self.enter(noisy) + self.time(time[:, None])
        for block in self.blocks:
            x = x + block(x)
        return self.leave(x)


class Adapter(nn.Module):
    def __init__(self, linear, size=4):
        super().__init__()
        self.down = nn.Linear(linear.in_features, size, bias=False)
        self.up = nn.Linear(size, linear.out_features, bias=False)
        nn.init.normal_(self.up.weight, std=0.1)
        self.original = [linear.forward]
        linear.forward = self.forward

    def forward(self, x):
        return self.original[0](x) + self.up(self.down(x))


class Network(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.adapters = nn.ModuleList(Adapter(block[1]) for block in model.blocks)


torch.manual_seed(989)
unet = Denoise().to(KIND).requires_grad_(False)
network = Network(unet).to(KIND)
if ranks > 1:
    dist.init_process_group("gloo")
    network = DDP(network)
optimizer = torch.optim.Adafactor(network.parameters(), lr=2e-2)
tracer = ttrace.attach(network, optimizer=optimizer)
for number in range(2):
    torch.manual_seed(9890 + number)
    clean, noise, time = torch.randn(8, 10).to(KIND), torch.randn(8, 10).to(KIND), torch.rand(8).to(KIND)
    clean, noise, time = (part.chunk(ranks)[rank] for part in (clean, noise, time))
    with tracer.step(number):
        noisy = clean * (1 - time[:, None]) + noise * time[:, None]
        loss = nn.functional.mse_loss(unet(noisy, time), noise - clean)
        loss.backward()
        if ranks > 1 and "--bug" not in sys.argv:
            for parameter in network.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= ranks
        optimizer.step()
        optimizer.zero_grad()
    size = sum(p.detach().double().square().sum() for p in network.parameters()).item()
    print(f"rank {rank} step {number}: loss {loss.item():.6f} adapters {size:.8f}", flush=True)
if ranks > 1:
    dist.destroy_process_group()
