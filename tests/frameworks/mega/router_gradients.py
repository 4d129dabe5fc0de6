"""Prints what auxiliary losses add to the gradients of examples/megatron_core/train.py's routers, without TTrace.

    torchrun --nproc-per-node 2 router_gradients.py --experts 4 --per-token-loss --z-loss 0.001 --tp 2 --sp

The step runs with and without these losses. The norm of the difference must not depend on how the program is parallel.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

sys.argv += ["--precision", "f64"]
sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "megatron_core"))

import train  # noqa: E402


def gradients(chunk) -> dict[str, torch.Tensor]:
    chunk.zero_grad_buffer()
    train.get_forward_backward_func()(
        forward_step_func=train.forward_step,
        data_iterator=train.batches(0),
        model=chunk,
        num_microbatches=train.ARGS.global_batch // train.ARGS.micro_batch,
        seq_length=train.ARGS.sequence,
        micro_batch_size=train.ARGS.micro_batch,
        forward_only=False,
    )
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
