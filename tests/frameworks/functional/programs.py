"""A transformer in functional style, whose parts are regions."""

from __future__ import annotations

from catalogue import HERE, Layout, Program

PROGRAMS = [
    Program(
        "transformer",
        HERE / "functional" / "train.py",
        (
            Layout("recompute", 1, "--recompute"),
            Layout("ddp", 2, "--ddp", quick=True),
            Layout("ddp, 2 micro-batches", 2, "--ddp --microbatches 2", "--microbatches 2"),
            Layout("ddp recompute", 2, "--ddp --recompute"),
        ),
    )
]
