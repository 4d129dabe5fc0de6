"""Debug models of torchtitan in its own Trainer, and schedules of torch's pipelining."""

from __future__ import annotations

from catalogue import HERE, Layout, Program

TRAIN = HERE / "titan" / "train.py"
NEEDS = ("torchtitan",)
BOTH = "--backend partial_dtensor --layers 3"


def pipelined(schedule: str, options: str = "") -> Layout:
    name = f"pp {schedule}{' ' + options if options else ''}".replace("--", "")
    ranks = 4 if options else 2
    return Layout(name, ranks, f"--pp 2 --schedule {schedule} --microbatches 4 {options}", "--microbatches 4")


PROGRAMS = [
    Program(
        "llama3",
        TRAIN,
        (
            Layout("fsdp", 2, "--dp 2"),
            Layout("hsdp", 4, "--dp 2 --replicate 2"),
            Layout("tp", 2, "--tp 2", quick=True),
            Layout("tp without sp", 2, "--tp 2 --no-sp"),
            Layout("fsdp tp", 4, "--dp 2 --tp 2"),
            pipelined("1F1B"),
            pipelined("Interleaved1F1B"),
            pipelined("InterleavedZeroBubble"),
            pipelined("ZBVZeroBubble"),
            pipelined("1F1B", "--dp 2"),
            pipelined("1F1B", "--tp 2"),
        ),
        BOTH,
        NEEDS,
    ),
]
