"""Trains one step and saves model and optimizer with torch.distributed.checkpoint.

    saved_by_dcp.py FOLDER {one,fsdp,tp} [--wrong]

The gradients are given, so that all layouts save the same bits; --wrong changes one of them.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def _gradients(model: torch.nn.Module, wrong: bool) -> dict[str, torch.Tensor]:
    torch.manual_seed(4)
    gradients = {
        name: torch.randn(value.shape, dtype=value.dtype) for name, value in model.named_parameters()
    }
    if wrong:
        gradients["2.weight"][1] *= 1.5
    return gradients


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("layout", choices=("one", "fsdp", "tp"))
    parser.add_argument("--wrong", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 5, dtype=torch.bfloat16)
    )
    gradients = _gradients(model, arguments.wrong)
    if arguments.layout != "one":
        torch.distributed.init_process_group("gloo")
        mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),), mesh_dim_names=("ranks",))
        if arguments.layout == "fsdp":
            for layer in (model[0], model[2]):
                fully_shard(layer, mesh=mesh)
        else:
            parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for name, parameter in model.named_parameters():
        gradient = gradients[name]
        if isinstance(parameter, DTensor):
            gradient = distribute_tensor(gradient, parameter.device_mesh, parameter.placements)
        parameter.grad = gradient
    optimizer.step()
    own, states = get_state_dict(model, optimizer)
    content = {"model": own, "optim": states, "seen": torch.tensor(7), "comment": {"text": "first"}}
    dcp.save(content, checkpoint_id=arguments.folder)
    if arguments.layout == "one":
        truth = {f"param/{name}": value.detach() for name, value in model.named_parameters()}
        for name, parameter in model.named_parameters():
            state = optimizer.state[parameter]
            truth |= {f"exp_avg/{name}": state["exp_avg"], f"exp_avg_sq/{name}": state["exp_avg_sq"]}
            truth[f"scalar/{name}.step"] = state["step"]
        truth["scalar/seen"] = torch.tensor(7)
        torch.save(truth, f"{arguments.folder}.truth.pt")
    if "RANK" in os.environ:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
