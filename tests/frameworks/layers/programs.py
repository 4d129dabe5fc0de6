"""A transformer whose layers divide the ranks in ways of their own."""

from __future__ import annotations

from catalogue import HERE, Layout, Program

PROGRAMS = [
    Program(
        "galvatron",
        HERE / "layers" / "train.py",
        (
            Layout("wide, narrow", 4, "--strategies wide,narrow,narrow,wide", quick=True),
            Layout("narrow, wide", 4, "--strategies narrow,wide,narrow,wide"),
            Layout("wide", 4, "--strategies wide,wide,wide,wide", precisions=("bf16",)),
            Layout("narrow", 4, "--strategies narrow,narrow,narrow,narrow", precisions=("bf16",)),
        ),
    )
]
