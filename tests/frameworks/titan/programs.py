"""Debug models of torchtitan in its own Trainer, and schedules of torch's pipelining."""

from __future__ import annotations

from catalogue import HERE, Layout, Program

TRAIN = HERE / "titan" / "train.py"
NEEDS = ("torchtitan", "spmd_types", "torchdata", "tokenizers")


def pipelined(schedule: str, options: str = "", **more) -> Layout:
    name = f"pp {schedule} {options}".replace("--", "").strip()
    ranks = 4 if options else 2
    return Layout(name, ranks, f"--pp 2 --schedule {schedule} --microbatches 4 {options}", "--microbatches 4", **more)


def both(name: str, ranks: int, options: str, shared: str, **more) -> Layout:
    """`shared` are options of the reference as well."""
    return Layout(name, ranks, f"{options} {shared}", shared, **more)


def stages(schedule: str, options: str = "", **more) -> Layout:
    name = f"{schedule} {options}".replace("--", "").strip()
    return Layout(name, 4 if options else 2, f"--schedule {schedule} {options}", **more)


# Torch counts tokens that are none before the first step, so that these buffers are wrong after it: docs/found.md.
WITHOUT_BIASES = ("--exclude", r"buffer/.*\.expert_bias_E/")

PROGRAMS = [
    Program(
        "llama3",
        TRAIN,
        (
            Layout("fsdp", 2, "--dp 2"),
            both("fsdp, 4 micro-batches", 2, "--dp 2", "--microbatches 4"),
            Layout("hsdp", 4, "--dp 2 --replicate 2"),
            Layout("tp", 2, "--tp 2", quick=True),
            Layout("tp without sp", 2, "--tp 2 --no-sp"),
            Layout("fsdp tp", 4, "--dp 2 --tp 2"),
            both("tp chunked loss", 2, "--tp 2", "--chunked-loss 4"),
            both("fsdp selective checkpointing", 2, "--dp 2", "--checkpoint selective"),
            both("tp full checkpointing", 2, "--tp 2", "--checkpoint full"),
            pipelined("1F1B"),
            pipelined("Interleaved1F1B"),
            pipelined("InterleavedZeroBubble"),
            pipelined("ZBVZeroBubble"),
            pipelined("1F1B", "--dp 2"),
            pipelined("1F1B", "--tp 2"),
        ),
        "--backend partial_dtensor --layers 3",
        NEEDS,
    ),
    Program(
        "llama3 full DTensor",
        TRAIN,
        (Layout("fsdp", 2, "--dp 2"), Layout("tp", 2, "--tp 2"), Layout("fsdp tp", 4, "--dp 2 --tp 2")),
        "--backend full_dtensor --layers 2",
        NEEDS,
    ),
    Program(
        "llama3 mixed precision",
        TRAIN,
        (Layout("fsdp", 2, "--dp 2", precisions=("f32",)), Layout("tp", 2, "--tp 2", precisions=("f32",))),
        "--backend partial_dtensor --layers 2 --mixed",
        NEEDS,
    ),
    Program(
        "llama3 compiled blocks",
        TRAIN,
        (Layout("fsdp", 2, "--dp 2"), Layout("tp", 2, "--tp 2")),
        "--backend partial_dtensor --layers 2 --compile aot_eager",
        NEEDS,
    ),
    Program(
        "qwen3",
        TRAIN,
        (Layout("fsdp", 2, "--dp 2"), Layout("tp", 2, "--tp 2")),
        "--model qwen3 --backend partial_dtensor --layers 2",
        NEEDS,
    ),
    Program(
        "deepseek_v3",
        TRAIN,
        # Experts multiply in BF16 in every precision.
        (
            Layout("fsdp", 2, "--dp 2", precisions=("bf16",)),
            Layout("tp", 2, "--tp 2", precisions=("bf16",)),
            Layout("fsdp ep", 2, "--dp 2 --ep 2", precisions=("bf16",)),
            Layout("fsdp tp", 4, "--dp 2 --tp 2", precisions=("bf16",), quick=True),
            Layout("tp ep", 2, "--tp 2 --ep 2", precisions=("bf16",)),
        ),
        "--model deepseek_v3 --backend partial_dtensor --layers 2",
        NEEDS,
    ),
    Program(
        "deepseek_v3 stages",
        TRAIN,
        (
            Layout("pp 1F1B", 2, "--pp 2", precisions=("bf16",), check=WITHOUT_BIASES),
            Layout(
                "pp GPipe tp without sp", 4, "--pp 2 --schedule GPipe --tp 2 --no-sp", precisions=("bf16",), check=WITHOUT_BIASES
            ),
        ),
        "--model deepseek_v3 --backend partial_dtensor --layers 4 --microbatches 4 --steps 1",
        NEEDS,
        steps="0:1",
    ),
    Program(
        "pipelining",
        HERE / "titan" / "stages.py",
        (
            stages("GPipe"),
            stages("1F1B"),
            stages("Interleaved1F1B"),
            stages("InterleavedZeroBubble", quick=True),
            stages("ZBVZeroBubble"),
            stages("DualPipeV"),
            stages("1F1B", "--fsdp"),
            stages("1F1B", "--tp"),
            stages("Interleaved1F1B", "--fsdp"),
            stages("InterleavedZeroBubble", "--tp"),
            stages("InterleavedZeroBubble", "--fsdp --keep-gathered"),
        ),
    ),
]
