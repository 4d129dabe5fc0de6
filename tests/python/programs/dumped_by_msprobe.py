"""A small model whose values msprobe dumps, and which also saves them itself: what an import must give back.

    dumped_by_msprobe.py FOLDER [--scale S] [--task statistics] [--tensor-parallel]

msprobe's own packages for tables and charts are replaced by empty ones, because dumping does not use them.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import json
import os
import sys
import types
from pathlib import Path

import torch


class _Anything(types.ModuleType):
    __path__ = ()

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Absent:
    NAMES = ("matplotlib", "pandas", "openpyxl", "tqdm", "pytz", "tensorboard", "torch.utils.tensorboard")

    def find_spec(self, name, path=None, target=None):
        if any(name == own or name.startswith(own + ".") for own in self.NAMES):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Anything(spec.name)

    def exec_module(self, module):
        pass


class Net(torch.nn.Module):
    """BF16, F32 and F16 one after the other, and integers at the front."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(7, 4, dtype=torch.bfloat16)
        self.fc1 = torch.nn.Linear(4, 8, dtype=torch.bfloat16)
        self.norm = torch.nn.LayerNorm(8, dtype=torch.float32)
        self.fc2 = torch.nn.Linear(8, 4, dtype=torch.float16)

    def forward(self, tokens):
        hidden = torch.relu(self.fc1(self.embed(tokens)))
        return self.fc2(self.norm(hidden.float()).half())


def _watch(model: torch.nn.Module, truth: dict[str, torch.Tensor], step: int) -> list:
    def forward(name):
        def hook(module, args, output):
            truth[f"s{step}/m0/input/{name}/0"] = args[0].detach().clone()
            truth[f"s{step}/m0/output/{name}/0"] = output.detach().clone()
            for parameter, value in module.named_parameters():
                truth[f"s{step}/param/{name}.{parameter}/0"] = value.detach().clone()
            path = f"s{step}/m0/grad_output/{name}/0"
            output.register_hook(lambda grad: truth.update({path: grad.clone()}))

        return hook

    return [module.register_forward_hook(forward(name)) for name, module in model.named_children()]


def _dumped(debugger, model: torch.nn.Module, truth: dict[str, torch.Tensor], scale: float) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        handles = _watch(model, truth, step)
        debugger.start(model=model)
        loss = (model(torch.arange(6).reshape(2, 3)).float() * scale).sum()
        loss.backward()
        debugger.stop()
        debugger.step()
        for handle in handles:
            handle.remove()
        for name, parameter in model.named_parameters():
            truth[f"s{step}/m0/param_grad/{name}/0"] = parameter.grad.clone()
        optimizer.step()
        optimizer.zero_grad()


def _dumped_in_parts(debugger, truth: dict[str, torch.Tensor]) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    tokens = torch.randn(2, 4)
    truth["s0/param/0.weight/0"] = model[0].weight.detach().clone()
    truth["s0/param/2.weight/0"] = model[2].weight.detach().clone()
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),), mesh_dim_names=("tp",))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    debugger.start(model=model)
    model(tokens).sum().backward()
    debugger.stop()
    debugger.step()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--task", default="tensor")
    parser.add_argument("--tensor-parallel", action="store_true")
    arguments = parser.parse_args()
    sys.meta_path.insert(0, _Absent())
    sys.path.append(str(Path(sys.prefix) / "foreign"))
    rank = int(os.environ.get("RANK", "0"))
    if arguments.tensor_parallel:
        torch.distributed.init_process_group("gloo")
    from msprobe.pytorch import PrecisionDebugger

    arguments.folder.mkdir(parents=True, exist_ok=True)
    config = arguments.folder / f"config{rank}.json"
    own = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"}
    config.write_text(
        json.dumps(
            {
                "task": arguments.task, "dump_path": str(arguments.folder / "dump"), "rank": [], "step": [],
                "level": "mix", arguments.task: own,
            }
        )
    )  # fmt: skip
    torch.manual_seed(3)
    debugger = PrecisionDebugger(config_path=str(config))
    truth: dict[str, torch.Tensor] = {}
    if arguments.tensor_parallel:
        _dumped_in_parts(debugger, truth)
        torch.distributed.destroy_process_group()
    else:
        _dumped(debugger, Net(), truth, arguments.scale)
    if rank == 0:
        torch.save(truth, arguments.folder / "truth.pt")


if __name__ == "__main__":
    main()
