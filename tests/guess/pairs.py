"""Pairs of programs of one model each, written independently of each other, and which of their tensors are the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
EXAMPLES = HERE.parent.parent / "examples"


@dataclass(frozen=True)
class Pair:
    """`truth` is the map that was written by hand, and committed before a guess was first made."""

    name: str
    what: str
    reference: str  # script and options
    candidate: str
    truth: Path
    ranks: int = 1  # of the candidate
    needs: str = ""  # a package

    def commands(self, python: str, other_weights: bool) -> tuple[list[str], list[str]]:
        """`other_weights`: the candidate draws weights of its own, from another seed."""
        seed = " --seed 2" if other_weights else ""
        launcher = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(self.ranks)]
        own = launcher if self.ranks > 1 else [python]
        return [python, *self.reference.split()], [*own, *(self.candidate + seed).split()]


def _truth(name: str) -> Path:
    return HERE / "truth" / f"{name}.yaml"


_HUGGING = HERE / "hugging.py"
_MEGATRON = f"{EXAMPLES / 'megatron_core' / 'train.py'} --swiglu --rms-norm --groups 2 --tp 2 --sp --steps 1"

PAIRS = (
    Pair(
        "llama",
        "Llama of transformers, and one with one weight for queries, keys and values, one for gate and up",
        f"{_HUGGING} llama", f"{HERE / 'own_llama.py'}", _truth("llama"), needs="transformers",
    ),
    Pair(
        "gpt2",
        "GPT-2 of transformers, whose weights are transposed and whose queries, keys and values share one, "
        "and one with three linears and half-layers in one list",
        f"{_HUGGING} gpt2", f"{HERE / 'own_gpt2.py'}", _truth("gpt2"), needs="transformers",
    ),
    Pair(
        "t5",
        "T5 of transformers, and one with towers of other names, joint keys and values, and tables of distances "
        "outside of the layers",
        f"{_HUGGING} t5", f"{HERE / 'own_t5.py'}", _truth("t5"), needs="transformers",
    ),
    Pair(
        "vit",
        "ViT of transformers, and one that cuts patches out and multiplies them by a matrix, with one weight for "
        "queries, keys and values of each head",
        f"{_HUGGING} vit", f"{HERE / 'own_vit.py'}", _truth("vit"), needs="transformers",
    ),
    Pair(
        "megatron",
        "examples/plain_torch, and Megatron-core with sequence parallelism on two ranks",
        f"{EXAMPLES / 'plain_torch' / 'train.py'} --steps 1", _MEGATRON,
        EXAMPLES / "plain_torch" / "plain.rename.yaml", ranks=2, needs="megatron.core",
    ),
    Pair(
        "encoder",
        "torch's own encoder layers, and DTensor's example with tensor parallelism on two ranks",
        f"{HERE / 'own_encoder.py'}", f"{EXAMPLES / 'dtensor' / 'train.py'} --tp 2 --steps 1",
        _truth("encoder"), ranks=2,
    ),
    Pair(
        "towers",
        "two towers of one shape that run in the opposite order, and two linears of one shape with each other's names",
        f"{HERE / 'towers.py'} reference", f"{HERE / 'towers.py'} candidate", _truth("towers"),
    ),
)  # fmt: skip
