"""Megatron-core on CPUs: examples/megatron_core/train.py with what tests/python/test_megatron.py does not run."""

from __future__ import annotations

from catalogue import HERE, Layout, Program

TRAIN = HERE.parents[1] / "examples" / "megatron_core" / "train.py"
NEEDS = ("megatron.core",)
# With --repaired: latent attention of megatron-core 0.16.1 on tensor-parallel ranks has a defect (docs/found.md).
ALL = ("f32", "bf16", "f16")
# Two runs with different scales of the loss are comparable.
OTHER_SCALE = "--loss-scale 1024"

PROGRAMS = [
    Program(
        "gpt",
        TRAIN,
        (
            Layout("cp2", 2, "--cp 2", precisions=ALL, quick=True),
            Layout("cp2, loss per token", 2, "--cp 2 --per-token-loss", "--per-token-loss", precisions=("f32",)),
            Layout("tp2 sp cp2", 4, "--tp 2 --sp --cp 2", precisions=ALL),
            Layout("cp2 pp2", 4, "--cp 2 --pp 2"),
            Layout("cp2 dp2", 4, "--cp 2 --distributed-optimizer"),
            Layout("cp2, recomputed", 2, "--cp 2 --recompute full"),
            Layout("tp2, another loss scale", 2, "--tp 2 --loss-scale 65536", OTHER_SCALE, precisions=("f16",)),
            Layout("dp2", 2, precisions=("f16",)),
            Layout("dp2, distributed", 2, "--distributed-optimizer --loss-scale 65536", OTHER_SCALE, ("f16",)),
            Layout("tp2 pp2 vpp2", 4, "--tp 2 --pp 2 --vpp 2", precisions=("f16",)),
        ),
        needs=NEEDS,
    ),
    Program(
        "mtp",
        TRAIN,
        (
            Layout("tp2", 2, "--tp 2", precisions=ALL),
            Layout("tp2 sp", 2, "--tp 2 --sp", precisions=ALL),
            Layout("pp2", 2, "--pp 2", precisions=ALL),
            Layout("dp2", 2, "--distributed-optimizer"),
            Layout("cp2", 2, "--cp 2 --per-token-loss", "--per-token-loss"),
            Layout("tp2 sp pp2", 4, "--tp 2 --sp --pp 2"),
            Layout("tp2 sp, recomputed", 2, "--tp 2 --sp --recompute full"),
        ),
        options="--mtp 1",
        needs=NEEDS,
    ),
    Program(
        "latent",
        TRAIN,
        (
            Layout("tp2", 2, "--tp 2 --repaired", precisions=ALL),
            Layout("tp2 sp", 2, "--tp 2 --sp --repaired", precisions=ALL),
            Layout("cp2", 2, "--cp 2"),
            Layout("pp2", 2, "--pp 2", precisions=("f32",)),
            Layout("tp2 sp, recomputed", 2, "--tp 2 --sp --recompute full --repaired", precisions=("f32",)),
        ),
        options="--latent --rms-norm",
        needs=NEEDS,
    ),
    Program(
        "experts",
        TRAIN,
        (
            Layout("ep2", 2, "--ep 2", precisions=ALL),
            Layout("ep2, all-gather", 2, "--ep 2 --dispatcher allgather", precisions=("f32",)),
            Layout("tp2 sp", 2, "--tp 2 --sp"),
            Layout("tp2 sp ep2", 4, "--tp 2 --sp --ep 2"),
            Layout("cp2 ep2", 2, "--cp 2 --ep 2", precisions=("f32",)),
            Layout("pp2", 2, "--pp 2", precisions=("f32",)),
            Layout("ep2, recomputed", 2, "--ep 2 --recompute full"),
        ),
        options="--experts 4 --shared-expert --swiglu",
        needs=NEEDS,
    ),
    Program(
        "latent experts mtp",
        TRAIN,
        (
            Layout("ep2", 2, "--ep 2", precisions=("f32", "bf16")),
            Layout("tp2 sp pp2", 4, "--tp 2 --sp --pp 2 --repaired", precisions=("f32",)),
        ),
        options="--latent --rms-norm --mtp 1 --experts 4 --shared-expert --swiglu --expert-bias",
        needs=NEEDS,
    ),
    Program(
        "offload",
        TRAIN,
        (
            Layout("tp2 sp", 2, "--tp 2 --sp --offload"),
            Layout("pp2", 2, "--pp 2 --offload", precisions=("f32",)),
        ),
        needs=NEEDS,
    ),
    Program(
        "delayed",
        TRAIN.with_name("delayed_weight_gradients.py"),
        (
            Layout("tp2 sp", 2, "--tp 2 --sp", "--immediate", precisions=ALL),
            Layout("pp2", 2, "--pp 2", "--immediate", precisions=("f32",)),
        ),
        needs=NEEDS,
    ),
]
