"""`ttrace infer` on traces that declare nothing, on wrong declarations, and what its file is good for."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import HANG, PROGRAM, ROOT, python, torchrun
from test_megatron import LAYOUTS

pytest.importorskip("megatron.core", reason="pip install --no-deps megatron-core==0.16.1 einops")
TRAIN = str(ROOT / "examples" / "megatron_core" / "train.py")
DTENSOR = str(ROOT / "examples" / "dtensor" / "train.py")
PLACED = str(Path(__file__).parent / "with_placements.py")


@dataclass
class Inferred:
    code: int
    report: dict

    def placements(self, which: str) -> dict[str, list[str]]:
        """Of every tensor, by rank; which: "inferred", "declared"."""
        return {tensor["id"]: tensor[which] for tensor in self.report["tensors"]}


class Traces:
    """Records traces as `ttrace check` would, without comparing them; references once."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._references: dict[str, Path] = {}
        self._count = 0

    def _record(self, command: str, kind: str, **variables: str) -> Path:
        self._count += 1
        trace = self._folder / f"{kind}{self._count}"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TTRACE_")}
        environment |= {"TTRACE_PASS": kind, "TTRACE_DIR": str(trace), "TTRACE_STEPS": "0:2", **variables}
        result = subprocess.run(
            command, shell=True, capture_output=True, text=True, timeout=HANG, check=False, env=environment
        )
        assert result.returncode == 0, result.stderr[-3000:]
        return trace

    def reference(self, command: str) -> Path:
        if command not in self._references:
            self._references[command] = self._record(torchrun(1, command), "reference")
        return self._references[command]

    def candidate(self, reference: Path, command: str) -> Path:
        return self._record(command, "candidate", TTRACE_REFERENCE=str(reference))

    def infer(self, reference: Path, candidate: Path, *options: str) -> Inferred:
        command = [PROGRAM, "infer", str(reference), str(candidate), "--format", "json", *options]
        result = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)
        assert result.returncode in (0, 1), result.stderr
        return Inferred(result.returncode, json.loads(result.stdout))


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Traces:
    return Traces(tmp_path_factory.mktemp("traces"))


# Ranks, script with options of both, options of the candidate.
CASES = {
    f"{precision} {name}": (ranks, f"{TRAIN} --precision {precision} {common}", options)
    for precision in ("f32", "bf16")
    for name, (ranks, options, common) in LAYOUTS.items()
}
CASES |= {
    "f32 tp4 sp": (4, f"{TRAIN} --precision f32", "--tp 4 --sp"),
    "f32 tp2 sp ep2": (4, f"{TRAIN} --precision f32 --experts 4", "--tp 2 --sp --ep 2"),
    "f32 tp4 two key heads": (4, f"{TRAIN} --precision f32 --swiglu --groups 2", "--tp 4 --sp"),
    "bf16 gated": (2, f"{TRAIN} --precision bf16 --swiglu --rms-norm --untied", "--tp 2 --sp"),
    "fsdp tp sp": (4, DTENSOR, "--fsdp --tp 2 --sp"),
    "ddp": (2, DTENSOR, "--ddp"),
}
USUAL = ("f32 tp2 sp", "bf16 dp2 distributed optimizer")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in USUAL else pytest.mark.full) for name in CASES]
)
def test_placements_are_found_without_any_declaration(traces, name):
    ranks, both, options = CASES[name]
    reference = traces.reference(both)
    undeclared = traces.infer(
        reference, traces.candidate(reference, torchrun(ranks, f"{PLACED} none {both} {options}"))
    )
    assert undeclared.code == 0 and not undeclared.report["declares"]
    declared = traces.infer(reference, traces.candidate(reference, torchrun(ranks, f"{both} {options}")))
    assert declared.code == 0, declared.report["contradictions"]

    # The values are the same bits in both traces, so that the same must be found in them.
    found, agreeing = undeclared.placements("inferred"), declared.report["tensors"]
    right = sum(tensor["agrees"] and found[tensor["id"]] == tensor["inferred"] for tensor in agreeing)
    print(f"{name}: {right} of {len(found)}, {undeclared.report['counts']}")
    assert len(found) == len(agreeing) > 500
    assert right >= 0.98 * len(found)


def test_wrong_declaration_is_named(traces, tmp_path):
    """Outputs of linear_fc1 are declared as cut within four blocks; they are cut as a whole."""
    file = tmp_path / "wrong.yaml"
    file.write_text('tensors:\n- {path: decoder.layers.*.mlp.linear_fc1, value: "s b (4*f[tp])"}\n')
    both = f"{TRAIN} --precision f32"
    reference = traces.reference(both)
    result = traces.infer(
        reference,
        traces.candidate(reference, torchrun(2, f"{PLACED} derived --annotations {file} {both} --tp 2 --sp")),
    )
    assert result.code == 1
    named = {(entry["pattern"], entry["declared"]) for entry in result.report["contradictions"]}
    assert named == {("decoder.layers.*.mlp.linear_fc1", "a c (4*d[tp])")}
    assert {entry["inferred"] for entry in result.report["contradictions"]} == {"a c d[tp]"}


def test_file_that_was_inferred_makes_a_check_clean(traces, check, tmp_path):
    both = f"{TRAIN} --precision f32"
    file = tmp_path / "inferred.yaml"
    reference = traces.reference(both)
    candidate = traces.candidate(reference, torchrun(2, f"{PLACED} none {both} --tp 2 --sp"))
    assert traces.infer(reference, candidate, "--output", str(file)).code == 0
    placed = f"{PLACED} none --annotations {file} {both}"
    outcome = check(python(placed), torchrun(2, f"{placed} --tp 2 --sp"))
    assert outcome.code == 0, outcome.summary()
    assert len(outcome.ids()) > 2000
