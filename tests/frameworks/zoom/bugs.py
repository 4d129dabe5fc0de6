"""Bugs inside large modules. Each was declared before its first run: the module's first wrong operator, and the
line of its call, which ends in `# zoom: NAME` in the program's text.

A declaration that is changed afterwards says why in `redeclared`, and counts as a miss.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class ZoomBug:
    name: str
    block: str
    layout: str
    operator: str  # its name, without the underscore of operators in place
    precision: str = "f32"
    backward: bool = False
    only_in: str = ""  # "candidate" or "reference", where the other program does not run the operator
    redeclared: str = ""
    quick: bool = False  # part of `./dev test`
    script: str = "blocks.py"
    needs: str = ""  # a module without which it is skipped

    @property
    def line(self) -> str:
        """"blocks.py:88": where its marker stands."""
        file = HERE / self.script
        for number, text in enumerate(file.read_text().splitlines(), 1):
            if text.endswith(f"# zoom: {self.name}"):
                return f"{file.name}:{number}"
        raise ValueError(f"{file} has no line that ends in # zoom: {self.name}")


BUGS = [
    ZoomBug("scale-of-scores", "decoder", "ddp", "aten::mul", quick=True),
    ZoomBug("softmax-over-queries", "decoder", "tp", "aten::_softmax"),
    ZoomBug("mask-off-by-one", "decoder", "ddp", "aten::add", "bf16", only_in="candidate"),
    ZoomBug("epsilon", "decoder", "tp", "aten::add", "bf16"),
    ZoomBug("softmax-in-bf16", "decoder", "ddp", "aten::_softmax", "bf16"),
    ZoomBug("offset-on-rank-1", "decoder", "sequence", "aten::add"),
    ZoomBug("gathered-backwards", "decoder", "sequence", "aten::cat", only_in="candidate"),
    ZoomBug("attention-not-summed", "decoder", "tp", "aten::mm", quick=True),
    ZoomBug("largest-over-ranks", "decoder", "tp", "c10d::allreduce", only_in="candidate"),
    ZoomBug("key-transposed", "decoder", "fsdp", "aten::transpose", only_in="candidate"),
    ZoomBug("rotated-the-other-way", "decoder", "fsdp", "aten::add", "bf16", only_in="candidate"),
    ZoomBug("groups-interleaved", "decoder", "ddp", "aten::repeat", only_in="candidate"),
    ZoomBug("gate-gradient", "decoder", "tp", "aten::mul", backward=True, quick=True),
    ZoomBug("rank-1-scales", "decoder", "ddp", "aten::mul", only_in="candidate"),
    ZoomBug("weights-not-normalised", "experts", "ddp", "aten::div", only_in="reference"),
    ZoomBug("choices-shifted", "experts", "ddp", "aten::add", only_in="candidate"),
    ZoomBug("other-gelu", "experts", "fsdp", "aten::gelu"),
    ZoomBug("gate-not-detached", "experts", "ddp", "aten::mul", backward=True),
    ZoomBug("shifted-by-two", "scan", "fsdp", "aten::roll"),
    ZoomBug("rate-not-clamped", "scan", "ddp", "aten::clamp", only_in="reference"),
    ZoomBug("sum-in-bf16", "scan", "ddp", "aten::cumsum", "bf16"),
]
