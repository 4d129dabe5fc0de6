"""TransformerEngine's layers in a program of plain torch, on one rank or tensor parallel over all of them.

    python te_plain.py | torchrun --nproc-per-node 2 te_plain.py
"""

from __future__ import annotations

import os

import torch
import transformer_engine.pytorch as te
import ttrace
from torch import distributed as dist
from torch import nn
from transformer_engine.pytorch.tensor import Float8Quantizer, Float8Tensor

HIDDEN, POSITIONS, SAMPLES = 16, 8, 2
TYPE = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16}[ttrace.precision("bf16")]


class Quantise(nn.Module):
    """Returns codes of FP8, as modules do that hand them on to the next product."""

    def forward(self, x: torch.Tensor) -> Float8Tensor:
        return Float8Quantizer(torch.tensor(64.0), torch.zeros(1), torch.float8_e4m3fn)(x)


class Model(nn.Module):
    """Takes [s, b, h] and returns this rank's part of s."""

    def __init__(self, rank: int, ranks: int, **parallel) -> None:
        super().__init__()
        self.rank, self.ranks = rank, ranks
        options = {"params_dtype": TYPE, "sequence_parallel": True, **parallel}
        self.up = te.LayerNormLinear(HIDDEN, 4 * HIDDEN, parallel_mode="column", **options)
        self.activation = nn.GELU()
        self.quantise = Quantise()
        self.down = te.Linear(4 * HIDDEN, HIDDEN, parallel_mode="row", bias=False, **options)
        self.mlp = te.LayerNormMLP(HIDDEN, 4 * HIDDEN, set_parallel_mode=True, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.chunk(self.ranks)[self.rank]
        hidden = self.activation(self.up(x))
        hidden = hidden + (self.quantise(hidden).dequantize() - hidden).detach()
        x = x + self.down(hidden)
        return x + self.mlp(x)


def main() -> None:
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    parallel = {}
    if ranks > 1:
        dist.init_process_group("gloo")
        parallel = {"tp_size": ranks, "tp_group": dist.group.WORLD}
    torch.manual_seed(3)
    model = Model(rank, ranks, **parallel)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tracer = ttrace.attach(model, optimizer=optimizer)
    for step in range(2):
        with tracer.step(step):
            optimizer.zero_grad()
            generator = torch.Generator().manual_seed(step)
            whole = torch.randn(POSITIONS, SAMPLES, HIDDEN, generator=generator).to(TYPE)
            model(whole).float().square().sum().backward()
            for parameter in model.parameters():
                if ranks > 1 and getattr(parameter, "sequence_parallel", False):
                    dist.all_reduce(parameter.grad)
            optimizer.step()
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
