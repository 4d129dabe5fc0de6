"""A model with what modules do beyond taking and returning one tensor. Prints its losses exactly.

--wrong NAME plants an error: `scale` in the recomputed block, `shared` in the second call of a module.
--compile compiles two modules, by torch.compile or Module.compile, a function that calls them, or everything.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import torch
import ttrace
from torch import nn
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("--recompute", choices=["reentrant", "not-reentrant"])
parser.add_argument("--wrong", choices=["scale", "shared"])
parser.add_argument("--compile", choices=["module", "in-place", "function", "model"])
parser.add_argument("--backend", default="eager")
parser.add_argument("--dynamic", action="store_true", help="sizes of compiled code are symbols")
parser.add_argument("--precision", default="f32")
parser.add_argument("--raise-in-forward", action="store_true")
ARGS = parser.parse_args()
COMPILER = {"backend": ARGS.backend, "fullgraph": True, "dynamic": ARGS.dynamic}
TYPE = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16}[ttrace.precision(ARGS.precision)]


@dataclass
class Output:
    hidden: torch.Tensor
    note: str


class TuplesIn(nn.Module):
    """Takes keyword arguments, gives a tuple with None and a bias, as Megatron's linears do."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, *, hidden, mask=None):
        return self.linear(hidden), None, self.linear.bias


class Inplace(nn.Module):
    """Its consumer changes what a module has returned."""

    def __init__(self):
        super().__init__()
        self.linear, self.activation = nn.Linear(16, 16), nn.ReLU(inplace=True)

    def forward(self, x):
        return {"out": self.activation(self.linear(x)), "count": 3}


class Recomputed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        y = torch.nn.functional.gelu(self.up(self.norm(x)))
        if ARGS.wrong == "scale":
            y = y * 1.05
        return x + self.down(y)


class Nested(nn.Module):
    """Gives its own input to the module within."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x):
        return self.linear(x)


class Activated(nn.Sequential):
    """Module.compile() passes over a forward that is torch's own."""

    def forward(self, x):
        return self[1](self[0](x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.nested = Nested()
        self.tuples, self.inplace, self.block = TuplesIn(), Inplace(), Recomputed()
        self.shared, self.head = nn.Linear(16, 16), nn.Linear(16, 4)
        self.compiled = Activated(nn.Linear(16, 16), nn.Tanh())
        if ARGS.compile == "module":
            self.compiled = torch.compile(self.compiled, **COMPILER)
        elif ARGS.compile == "in-place":
            self.compiled.compile(**COMPILER)
        self.call_compiled = lambda x: self.compiled(x)
        if ARGS.compile == "function":
            self.call_compiled = torch.compile(self.call_compiled, **COMPILER)

    def forward(self, x) -> Output:
        hidden, _, bias = self.tuples(hidden=x, mask=None)
        hidden = self.inplace(hidden + bias)["out"]
        if ARGS.recompute:
            hidden = checkpoint(self.block, hidden, use_reentrant=ARGS.recompute == "reentrant")
        else:
            hidden = self.block(hidden)
        hidden = self.call_compiled(hidden) * 0.5
        hidden = hidden + self.nested(hidden)  # nobody has returned what both modules take
        hidden = self.shared(self.shared(hidden) * (1.05 if ARGS.wrong == "shared" else 1.0))
        hidden = hidden.view(4, 2, 16).transpose(0, 1)  # a view that is not contiguous
        if ARGS.raise_in_forward:
            raise RuntimeError("cannot go on")
        return Output(self.head(hidden), "a note")


torch.manual_seed(0)
model = Model().to(TYPE)
if ARGS.compile == "model":
    model = torch.compile(model, backend=ARGS.backend)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
tracer = ttrace.attach(model, optimizer=optimizer)
generator = torch.Generator().manual_seed(1)
for number in range(2):
    x = torch.randn(8, 16, generator=generator).to(TYPE)
    with tracer.step(number) as step:
        optimizer.zero_grad()
        for half in x.chunk(1):
            loss = model(half).hidden.square().mean(-1)
            step.loss(loss)
            loss.mean().backward()
        optimizer.step()
    print(number, loss.mean().item().hex())
print("module calls", tracer.module_calls, file=sys.stderr)
