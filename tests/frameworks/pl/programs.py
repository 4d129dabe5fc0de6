"""A program of Lightning: automatic and manual optimization under DDP, with accumulation and clipping, in every precision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from catalogue import Layout, Program

TRAIN = Path(__file__).parent / "train.py"
DDP = Layout("ddp", 2)  # Lightning deals samples out by a DistributedSampler
OWN = Layout("ddp with own samples", 2, "--own-samples", "--own-samples")
TWICE = "--accumulate 2 --clip 0.3"


def _program(name: str, layouts: tuple[Layout, ...], options: str = "") -> Program:
    return Program(name, TRAIN, layouts, options, needs=("lightning",), imports=("lightning.pytorch",))


PROGRAMS = (
    _program("automatic", (replace(DDP, quick=True), OWN, replace(DDP, name="ddp on 4", ranks=4))),
    _program("automatic accumulating", (DDP, OWN), TWICE),
    _program("manual", (DDP, OWN), "--manual"),
    _program("manual accumulating", (DDP, OWN), f"--manual {TWICE}"),
    _program("modules alone", (DDP, OWN), "--parts"),
    # Parameters in F32; the program's own precision is F32, too.
    _program("mixed", (replace(DDP, precisions=("f32",)), replace(OWN, precisions=("f32",))), f"--mixed {TWICE}"),
    _program("manual mixed", (replace(DDP, precisions=("f32",)),), "--mixed --manual"),
)
