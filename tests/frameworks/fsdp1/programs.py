"""A program of FullyShardedDataParallel, in each of its strategies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from catalogue import Layout, Program

TRAIN = Path(__file__).parent / "train.py"
FULL = Layout("full", 2, "--strategy FULL_SHARD")
GRADIENTS = Layout("gradients", 2, "--strategy SHARD_GRAD_OP")
REPLICATED = Layout("replicated", 2, "--strategy NO_SHARD")
HYBRID = Layout("hybrid", 4, "--strategy HYBRID_SHARD")

PROGRAMS = (
    Program("language model", TRAIN, (FULL, GRADIENTS, REPLICATED, HYBRID, Layout("full on 4", 4, FULL.options))),
    Program("accumulating", TRAIN, (replace(FULL, quick=True), GRADIENTS, HYBRID), "--accumulate 2 --clip 0.3"),
)
