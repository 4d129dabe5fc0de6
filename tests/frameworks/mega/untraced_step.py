"""One forward and backward of examples/megatron_core/train.py in FP64, without TTrace.

Takes that program's options from sys.argv when it is imported.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

sys.argv += ["--precision", "f64"]
sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "megatron_core"))

import train  # noqa: E402


def run(chunk: torch.nn.Module, forward_only: bool = False) -> list[dict[str, Any]]:
    """What the program returns for every micro-batch of its first step."""
    return train.get_forward_backward_func()(
        forward_step_func=train.forward_step,
        data_iterator=train.batches(0),
        model=chunk,
        num_microbatches=train.ARGS.global_batch // train.ARGS.micro_batch,
        seq_length=train.ARGS.sequence,
        micro_batch_size=train.ARGS.micro_batch,
        forward_only=forward_only,
    )
