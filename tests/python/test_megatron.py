"""Megatron-core 0.16.1 on CPUs: examples/megatron_core in its layouts, with nothing annotated."""

from __future__ import annotations

import re

import pytest
from conftest import ROOT, python, run_untraced, torchrun

pytest.importorskip("megatron.core", reason="pip install --no-deps megatron-core==0.16.1 einops")
TRAIN = str(ROOT / "examples" / "megatron_core" / "train.py")

# Ranks, options of the candidate, options of both.
LAYOUTS = {
    "tp2": (2, "--tp 2", ""),
    "tp2 sp": (2, "--tp 2 --sp", ""),
    "pp2": (2, "--pp 2", ""),
    "pp2 vpp2": (2, "--pp 2 --vpp 2", ""),
    "dp2": (2, "", ""),
    "dp2 distributed optimizer": (2, "--distributed-optimizer", ""),
    "tp2 dp2": (4, "--tp 2", ""),
    "tp2 pp2": (4, "--tp 2 --pp 2", ""),
    "dp2 overlapped": (2, "--distributed-optimizer --overlap", ""),
    "ep2": (2, "--ep 2", "--experts 4"),
    "tp2 sp ep2": (4, "--tp 2 --sp --ep 2", "--experts 4"),
    "full recompute": (2, "--tp 2 --recompute full", ""),
}
# Clean runs that have raised alarms: what a sum of four addends rounds was in no bound; clipping norms are
# summed in F32 over other parts on every layout, and moments have that in common; norms of queries and keys
# see other heads on every rank, and few elements tell little of what a kernel rounds in them.
SYMPTOMS = {
    "tp4 sp": (4, "--tp 4 --sp", "--seed 99"),
    "overlapped, long buckets": (
        4,
        "--tp 2 --distributed-optimizer --overlap",
        "--seed 11 --layers 6 --hidden 128",
    ),
    "tp2, norms of heads": (2, "--tp 2", "--seed 306 --hidden 32 --qk-norm"),
    "tp2 sp, norms of 8 elements": (4, "--tp 2 --sp", "--seed 207 --hidden 32 --qk-norm"),
}
USUAL = [("f32", "pp2 vpp2"), ("bf16", "tp2 sp"), ("bf16", "dp2 overlapped"), ("bf16", "ep2")]
CASES = [
    pytest.param(precision, name, marks=[] if (precision, name) in USUAL else pytest.mark.full)
    for precision in ("f32", "bf16")
    for name in LAYOUTS
] + [pytest.param("bf16", name, marks=pytest.mark.full) for name in SYMPTOMS]


@pytest.mark.parametrize(("precision", "name"), CASES)
def test_clean_layouts_match_without_annotations(check, precision, name):
    ranks, options, common = (LAYOUTS | SYMPTOMS)[name]
    both = f"{TRAIN} --precision {precision} {common}"
    outcome = check(python(both), torchrun(ranks, f"{both} {options}"))
    assert outcome.code == 0, outcome.summary()
    kinds: dict[str, int] = {}
    for identity in outcome.ids():
        kind = re.match(r"s\d+/(?:m\d+/)?(\w+)/", identity).group(1)
        kinds[kind] = kinds.get(kind, 0) + 1
    print(name, precision, kinds)
    # Without experts' own parameters (their gradients mix micro-batches) everything has a counterpart.
    assert outcome.report["counts"]["missing_in_reference"] == 0
    if "--experts" in common:
        assert kinds.get("routing", 0) > 0
        assert outcome.report["routing"]["illegal"] == 0
    for kind in ("param", "output", "input", "grad_output", "main_grad", "exp_avg"):
        assert kinds.get(kind, 0) > 0, kind


def test_the_users_lines_are_at_most_ten():
    text = (ROOT / "examples" / "megatron_core" / "train.py").read_text()
    lines = [line for line in text.splitlines() if "# ttrace" in line and not line.startswith('"""')]
    assert 1 <= len(lines) <= 10
    assert not [
        line for line in text.splitlines() if "ttrace" in line.split("#")[0] and "# ttrace" not in line
    ][len([line for line in text.splitlines() if line.strip().startswith("ttrace check")]) :]


def test_losses_are_the_same_bits_with_and_without_tracing(tmp_path):
    command = python(f"{TRAIN} --tp 1")
    untraced = run_untraced(command)
    traced = run_untraced(f"env TTRACE_PASS=reference TTRACE_DIR={tmp_path}/t TTRACE_STEPS=0:2 {command}")
    assert (tmp_path / "t" / "step000001" / "rank00000.h5").exists()
    assert traced == untraced
