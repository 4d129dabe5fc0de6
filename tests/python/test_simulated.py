"""All ranks of a parallel program in one process, under torch's LocalTensorMode."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from conftest import HANG, PROGRAM, ROOT, python

PROGRAMS = ROOT / "tests" / "python" / "programs"
SCRIPT = ROOT / "examples" / "dtensor" / "simulate.py"
ONE_DEVICE = python(f"{SCRIPT} --layers 1")
EIGHT_RANKS = python(f"{SCRIPT} --layers 1 --simulate 8 --tp 2")
NOISE = ("--noise", "2")


@pytest.fixture(scope="module")
def clean(check):
    return check(ONE_DEVICE, EIGHT_RANKS, *NOISE, steps="0:1")


def test_a_right_program_on_eight_simulated_ranks_is_clean(clean):
    assert clean.code == 0, clean.summary()
    assert clean.report["candidate"]["layout"] == {"dp": "4", "tp": "2"}
    assert len(list((clean.folder / "candidate" / "step000000").glob("rank*.h5"))) == 8
    assert {"main_grad", "grad_output", "param_next", "exp_avg", "loss"} <= {id.split("/")[1] for id in judged(clean)}


def judged(outcome) -> list[str]:
    return [tensor["id"].replace("/m0/", "/") for tensor in outcome.report["tensors"] if tensor["status"] == "within"]


def test_the_report_says_that_real_communication_was_not_seen(clean):
    sentences = [fact["sentence"] for fact in clean.report["not_seen"] if fact["kind"] == "parallel"]
    assert len(sentences) == 1 and "one process simulated all 8 ranks" in sentences[0], sentences


def test_a_gate_simulates_a_layout_and_locates_the_sum_that_its_ranks_forget(tmp_path):
    (tmp_path / "gate.yaml").write_text(
        "store: store\n"
        f"references: {{one: {{command: {ONE_DEVICE}, made_from: [{SCRIPT}], check: {{noise: 2}}}}}}\n"
        f"layouts: {{tp2: {{command: {python(f'{SCRIPT} --layers 1 --tp 2')} --bug output-not-summed, "
        "world: simulated, ranks: 4}}\n"
    )
    run = subprocess.run(
        [PROGRAM, "gate", "gate.yaml", "-o", "out"], cwd=tmp_path, capture_output=True, text=True, timeout=HANG,
        check=False, env=os.environ.copy(),
    )  # fmt: skip
    assert run.returncode == 1, run.stdout + run.stderr
    layout = json.loads((tmp_path / "out" / "summary.json").read_text())["layouts"][0]
    assert layout["first_divergence"] == "s0/m0/output/layers.0.wo/0"
    assert "the sum over tp is missing" in layout["probable_cause"], layout
    assert "simulate.py:" in layout["source"]


@pytest.mark.parametrize(
    "keys", ["world: simulated", "ranks: 4", "world: processes, ranks: 4", "world: simulated, ranks: 1"]
)
def test_a_gate_refuses_a_simulated_layout_without_its_number_of_ranks(tmp_path, keys):
    (tmp_path / "gate.yaml").write_text(f"store: s\nreferences: {{one: x}}\nlayouts: {{big: {{command: y, {keys}}}}}\n")
    run = subprocess.run(
        [PROGRAM, "gate", "gate.yaml", "-o", "out"], cwd=tmp_path, capture_output=True, text=True, timeout=HANG,
        check=False,
    )  # fmt: skip
    assert run.returncode == 2
    assert "gate.yaml:3" in run.stderr and "`ranks: 64`" in run.stderr, run.stderr


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("fsdp", "cannot simulate fully_shard"),
        ("fake", "its collectives compute nothing"),
        ("asked", "TTRACE_SIMULATE asks for 4 simulated ranks, but this program runs on one rank"),
    ],
)
def test_what_cannot_be_simulated_is_refused_in_one_sentence(tmp_path, program, reason):
    script = PROGRAMS / "not_simulated.py"
    environment = {
        **os.environ, "TTRACE_PASS": "candidate", "TTRACE_DIR": str(tmp_path), "TTRACE_START": "own",
        **({"TTRACE_SIMULATE": "4"} if program == "asked" else {}),
    }  # fmt: skip
    run = subprocess.run(
        python(f"{script} {program}"), shell=True, capture_output=True, text=True, timeout=HANG, check=False,
        env=environment,
    )  # fmt: skip
    assert run.returncode != 0
    assert reason in run.stderr, run.stderr[-2000:]

