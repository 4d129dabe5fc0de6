"""The example of torch's own parallelism, in every layout that it has."""

from __future__ import annotations

from catalogue import HERE, Layout, Program

PROGRAMS = [
    Program(
        "transformer",
        HERE.parents[1] / "examples" / "dtensor" / "train.py",
        (
            Layout("ddp", 2, "--ddp"),
            Layout("fsdp", 2, "--fsdp"),
            Layout("hsdp", 4, "--hsdp"),
            Layout("tp", 2, "--tp 2"),
            Layout("tp 4 sp", 4, "--tp 4 --sp"),
            Layout("fsdp tp sp", 4, "--fsdp --tp 2 --sp", quick=True),
            Layout("pp", 2, "--pp", "--microbatches 4"),
        ),
    )
]
