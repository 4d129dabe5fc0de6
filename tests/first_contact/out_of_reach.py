# areal-project/AReaL#313 (2025-09-10): a module that FSDP does not manage is a copy on every rank, its inputs are the rank's own samples,
# and nobody reduces its gradients. Here an embedding of the task is left to fully_shard's ignored_params. Right: the program averages them.
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Mixer(nn.Module):
    def __init__(self, channels, patches):
        super().__init__()
        self.first, self.second = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.across = nn.Sequential(nn.Linear(patches, 2 * patches), nn.GELU(), nn.Linear(2 * patches, patches))
        self.along = nn.Sequential(nn.Linear(channels, 2 * channels), nn.GELU(), nn.Linear(2 * channels, channels))

    def forward(self, x):
        x = x + self.across(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.along(self.second(x))


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 4, stride=4)
        self.task = nn.Embedding(5, 16)
        self.mixers = nn.ModuleList(Mixer(16, 9) for _ in range(2))
        self.act = nn.Linear(16, 4)

    def forward(self, pictures, task):
        x = self.patch(pictures).flatten(2).transpose(1, 2) + self.task(task)[:, None]
        for mixer in self.mixers:
            x = mixer(x)
        return self.act(x.mean(1))


torch.manual_seed(81)
model = Policy().to(KIND)
left_alone = list(model.task.parameters())
if ranks > 1:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (ranks,))
    for mixer in model.mixers:
        fully_shard(mixer, mesh=mesh)
    fully_shard(model, mesh=mesh, ignored_params=set(left_alone))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, amsgrad=True)
tracer = ttrace.attach(model, optimizer=optimizer)
pictures, task = torch.rand(8, 3, 12, 12).to(KIND), torch.tensor([0, 1, 1, 4, 2, 0, 4, 4])
wanted = torch.randn(8, 4).to(KIND)
for number in range(2):
    with tracer.step(number):
        actions = model(pictures.chunk(ranks)[rank], task.chunk(ranks)[rank])
        loss = nn.functional.huber_loss(actions, wanted.chunk(ranks)[rank], delta=0.5)
        loss.backward()
        if ranks > 1 and "--bug" not in sys.argv:
            for parameter in left_alone:
                dist.all_reduce(parameter.grad)
                parameter.grad.div_(ranks)
        optimizer.step()
        optimizer.zero_grad()
    print(f"rank {rank} step {number}: loss {loss.item():.6f} task {model.task.weight.norm().item():.7f}", flush=True)
if ranks > 1:
    dist.destroy_process_group()
