"""A program of DeepSpeed: stages of ZeRO, with accumulation, clipping, a frozen parameter and offload to the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from catalogue import Layout, Program

TRAIN = Path(__file__).parent / "train.py"
# F32 against plain torch, BF16 against one rank of an engine, which has masters as well.
PLAIN, MASTERS = ("f32",), ("bf16",)
CPU = "DS_ACCELERATOR=cpu"
INNER = ("--allow-missing", r"\.local_attn/")  # DistributedAttention has the attention as a module within it
NO_F64 = ("--no-forced",)  # its engine refuses gradients in F64, which forced passes of F32 ask for


def _zero(stage: int, name: str = "", options: str = "", quick: bool = False, ranks: int = 2) -> tuple[Layout, ...]:
    layout = Layout(
        f"zero {stage}{name}", ranks, f"--stage {stage} {options}", "--plain", PLAIN, quick=quick, environment=CPU
    )
    engine = f"--stage {stage} {options}" if stage in (0, 3) else f"--stage 1 {options}"
    return (layout, replace(layout, reference=engine, precisions=MASTERS, quick=False))


PROGRAMS = (
    Program(
        "engine",
        TRAIN,
        (
            *_zero(0),
            *_zero(1),
            *_zero(2),
            *_zero(3, quick=True),
            *_zero(3, " persistent", "--persist 100"),
            *_zero(2, " on 4", ranks=4),
            *_zero(3, " on 4", ranks=4),
        ),
        needs=("deepspeed",),
        imports=("deepspeed",),
    ),
    Program(
        "accumulating",
        TRAIN,
        tuple(layout for stage in range(4) for layout in _zero(stage, quick=stage == 2)),
        "--accumulate 2 --clip 0.3",
        needs=("deepspeed",),
        imports=("deepspeed",),
    ),
    Program(
        "frozen",
        TRAIN,
        tuple(layout for stage in range(4) for layout in _zero(stage)),
        "--frozen",
        needs=("deepspeed",),
        imports=("deepspeed",),
    ),
    Program(
        "ulysses",
        TRAIN.with_name("ulysses.py"),
        (
            Layout("sp 2", 2, "--sp 2", "--plain", PLAIN, INNER, environment=CPU),
            Layout("dp 2 sp 2 zero 2", 4, "--sp 2 --stage 2", "--plain", PLAIN, INNER, environment=CPU),
        ),
        needs=("deepspeed",),
        imports=("deepspeed",),
    ),
    Program(
        "stages",
        TRAIN.with_name("stages.py"),
        (
            Layout("pp 2", 2, "--stages 2", precisions=PLAIN, check=NO_F64, environment=CPU),
            Layout("dp 2 pp 2 zero 1", 4, "--stages 2 --stage 1", "--stage 1", PLAIN, NO_F64, environment=CPU),
            Layout("pp 2 in bf16", 2, "--stages 2", precisions=MASTERS, environment=CPU),
        ),
        needs=("deepspeed",),
        imports=("deepspeed",),
    ),
    Program(
        "offloaded",
        TRAIN,
        (*_zero(2), *_zero(3)),
        "--offload",
        needs=("deepspeed",),
        imports=("deepspeed",),
    ),
)
