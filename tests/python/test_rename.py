"""A plain PyTorch model as the reference of Megatron-core, by examples/plain_torch's rename map."""

from __future__ import annotations

import re

import pytest
from conftest import ROOT, python, torchrun

pytest.importorskip("megatron.core", reason="pip install --no-deps megatron-core==0.16.1 einops")
PLAIN = ROOT / "examples" / "plain_torch"
MEGATRON = str(ROOT / "examples" / "megatron_core" / "train.py")
PATCHED = str(ROOT / "tests" / "python" / "megatron_bugs.py")
REFERENCE = python(f"{PLAIN / 'train.py'} --layers 2")
OPTIONS = "--layers 2 --swiglu --rms-norm --groups 2 --tp 2 --sp"
RENAME = ("--rename", str(PLAIN / "plain.rename.yaml"), "--noise", "3")


def kinds_of(identities: list[str]) -> dict[str, set[str]]:
    """Paths by kind."""
    kinds: dict[str, set[str]] = {}
    for identity in identities:
        kind, path = re.match(r"s\d+/(?:m\d+/)?(\w+)/([^/]+)/", identity).groups()
        kinds.setdefault(kind, set()).add(path)
    return kinds


def test_a_plain_model_is_a_reference_of_megatron(check):
    outcome = check(REFERENCE, torchrun(2, f"{MEGATRON} {OPTIONS}"), *RENAME)
    assert outcome.code == 0, outcome.summary()
    counts = outcome.report["counts"]
    assert counts["missing_in_reference"] == counts["missing_in_candidate"] == 0
    assert outcome.report["unmatched"] == []
    within = kinds_of(outcome.ids())
    layer = "decoder.layers.1."
    weights = {
        layer + name + ".weight"
        for name in ("input_layernorm", "self_attention.linear_qkv", "self_attention.linear_proj",
                     "pre_mlp_layernorm", "mlp.linear_fc1", "mlp.linear_fc2")
    } | {"embedding.word_embeddings.weight", "decoder.final_layernorm.weight"}  # fmt: skip
    for kind in ("param", "param_grad", "main_grad", "exp_avg", "exp_avg_sq", "param_next"):
        assert weights <= within[kind], kind
    modules = {path.removesuffix(".weight").removesuffix(".word_embeddings") for path in weights}
    for kind in ("output", "grad_output"):
        assert modules | {layer + "self_attention.core_attention", "output_layer"} <= within[kind], kind
    assert outcome.report["counts"]["operators"] > 0, "operators were checked on the candidate's values"


def test_a_bug_is_found_at_its_module(check):
    candidate = torchrun(2, f"{PATCHED} keys-and-values-swapped {OPTIONS}")
    outcome = check(REFERENCE, candidate, *RENAME)
    assert outcome.code == 1, outcome.summary()
    assert outcome.first == "s0/m0/input/decoder.layers.1.self_attention.core_attention/1", outcome.summary()


def test_without_a_map_the_remedy_is_told(check):
    outcome = check(REFERENCE, torchrun(2, f"{MEGATRON} {OPTIONS}"), "--start", "own", "--noise", "0")
    assert outcome.code == 2
    assert "--rename FILE" in outcome.errors, outcome.summary()
