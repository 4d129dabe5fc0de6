"""Prints what auxiliary losses add to the gradients of examples/megatron_core/train.py's routers, without TTrace.

    torchrun --nproc-per-node 2 router_gradients.py --experts 4 --per-token-loss --z-loss 0.001 --tp 2 --sp

The step runs with and without these losses. The norm of the difference must not depend on how the program is parallel.
"""

from __future__ import annotations

import os

import torch
from untraced_step import run, train


def gradients(chunk: torch.nn.Module) -> dict[str, torch.Tensor]:
    chunk.zero_grad_buffer()
    run(chunk)
    named = chunk.module.named_parameters()
    return {name: parameter.main_grad.clone() for name, parameter in named if name.endswith("router.weight")}


def main() -> None:
    train.start_ranks()
    chunk = train.build()[0][0]
    both = gradients(chunk)
    chunk.config.moe_z_loss_coeff, chunk.config.moe_aux_loss_coeff = None, 0.0
    without = gradients(chunk)
    if os.environ.get("RANK", "0") == "0":
        for name, gradient in both.items():
            print(f"{name}: {float((gradient - without[name]).norm()):.6e}")


if __name__ == "__main__":
    main()
