"""A small model whose values SGLang's dumper writes, and which also saves them itself.

    dumped_by_sglang.py FOLDER [--wrong] [--tp]

With --tp, ranks are Megatron-core's tensor-parallel ones, which the dumper notes in every file.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import torch


def _dumper(folder: Path):
    os.environ.update(
        DUMPER_ENABLE="1", DUMPER_DIR=str(folder / "dump"), DUMPER_EXP_NAME="run", DUMPER_ENABLE_GRAD="1",
        DUMPER_ENABLE_MODEL_VALUE="1", DUMPER_ENABLE_MODEL_GRAD="1", DUMPER_ENABLE_OUTPUT_CONSOLE="0",
    )  # fmt: skip
    # As its documentation says for programs other than SGLang.
    sys.path.append(str(Path(sys.prefix) / "foreign" / "sglang" / "srt" / "debug_utils"))
    from dumper import dumper

    return dumper


def _whole(dumper, truth: dict[str, torch.Tensor], wrong: bool) -> None:
    model = torch.nn.Linear(4, 4, dtype=torch.bfloat16)
    for step in range(2):
        hidden = torch.randn(2, 4, dtype=torch.bfloat16, requires_grad=True)
        tokens = torch.arange(3) + step
        dumper.dump("tokens", tokens)
        truth[f"s{step}/m0/data/tokens/0"] = tokens
        for layer in range(2):
            hidden = model(hidden)
            if wrong and layer == 1 and step == 0:
                hidden = hidden * 2
            dumper.dump("hidden_states", hidden, layer_id=layer)
            truth[f"s{step}/m0/output/layers.{layer}.hidden_states/0"] = hidden.detach()
            path = f"s{step}/m0/grad_output/layers.{layer}.hidden_states/0"
            hidden.register_hook(lambda grad, path=path: truth.update({path: grad.clone()}))
        for times in range(2):
            dumper.dump("twice", hidden.float() * times)
            truth[f"s{step}/m0/output/twice/0" + ("#1" if times else "")] = (hidden.float() * times).detach()
        dumper.dump("lengths", {"longest": 3})  # no tensor
        dumper.dump("rate", 0.5)
        hidden.float().sum().backward()
        dumper.dump_model(model)
        for name, parameter in model.named_parameters():
            truth[f"s{step}/param/{name}/0"] = parameter.detach().clone()
            truth[f"s{step}/main_grad/{name}/0"] = parameter.grad.clone()
        model.zero_grad()
        dumper.step()


def _in_parts(dumper, truth: dict[str, torch.Tensor]) -> None:
    from megatron.core import parallel_state

    torch.distributed.init_process_group("gloo")
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
    rank = torch.distributed.get_rank()
    whole = torch.randn(3, 8)
    for name, dims in (("columns", "b h[tp]"), ("addends", "b h[tp:partial]"), ("same", "b h")):
        part = whole.chunk(2, dim=1)[rank] if name == "columns" else whole / 2 if name == "addends" else whole
        dumper.dump(name, part, dims=dims)
        truth[f"s0/m0/output/{name}/0"] = whole
    dumper.dump("unsaid", whole.chunk(2, dim=0)[rank])
    dumper.step()
    torch.distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--wrong", action="store_true")
    parser.add_argument("--tp", action="store_true")
    arguments = parser.parse_args()
    dumper = _dumper(arguments.folder)
    torch.manual_seed(3)
    truth: dict[str, torch.Tensor] = {}
    if arguments.tp:
        _in_parts(dumper, truth)
    else:
        _whole(dumper, truth, arguments.wrong)
    if int(os.environ.get("RANK", "0")) == 0:
        torch.save(truth, arguments.folder / "truth.pt")


if __name__ == "__main__":
    main()
