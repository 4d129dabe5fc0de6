"""Programs that draw their data within the step: the reference follows what the candidate's ranks have drawn."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import HANG, python, torchrun
from conftest import PROGRAM as TTRACE

PROGRAM = str(Path(__file__).parent / "programs" / "drawn_data.py")


@pytest.fixture
def compare(check):
    """Of one step; `options` of the candidate, which runs on two ranks."""

    def run(options: str, reference: str = ""):
        return check(python(f"{PROGRAM} {reference}"), torchrun(2, f"{PROGRAM} {options}"), steps="0:1")

    return run


@pytest.mark.parametrize(
    ("data", "weight"), [("diffusion", "up.weight"), ("mixed", "up.weight"), ("tokens", "head.weight")]
)
def test_ranks_draw_the_data_of_their_own_samples(compare, data, weight):
    """Symptom: a right program diverged at its data, "the programs do not read the same input"."""
    outcome = compare(f"--data {data}", f"--data {data}")
    assert outcome.code == 0, outcome.summary()
    assert (outcome.folder / "rerouted").exists()
    assert not any("/draw/step." in identity for identity in outcome.ids())
    assert f"s0/main_grad/{weight}/0" in outcome.ids()


def test_ranks_that_draw_the_whole_batch_need_no_further_pass(compare):
    outcome = compare("--whole")
    assert outcome.code == 0, outcome.summary()
    assert not (outcome.folder / "rerouted").exists()


def test_an_error_in_drawn_data_is_found_where_it_is(compare):
    outcome = compare("--wrong 1.1")
    assert outcome.code == 1, outcome.summary()
    assert "/input/" in outcome.first or "/data/" in outcome.first, outcome.summary()


def test_ranks_that_draw_the_same_samples_are_accused(compare):
    outcome = compare("--same")
    assert outcome.code == 1, outcome.summary()


def test_samples_that_are_read_in_order_go_with_drawn_noise(compare):
    outcome = compare("--read in_order", "--read in_order")
    assert outcome.code == 0, outcome.summary()


@pytest.mark.parametrize("options", ["--pieces 2", "--read dealt"])
def test_numbers_of_which_nobody_knows_the_sample_are_not_judged(compare, options):
    """Symptom: a right program diverged at its data."""
    outcome = compare(options, "--read dealt" if "dealt" in options else "")
    assert outcome.code == 2 and outcome.report["verdict"] == "not_judged", outcome.summary()
    assert outcome.report["first_divergence"] is None
    assert "s0/draw/step.normal_/0" in outcome.report["headline"]


def test_jobs_let_the_reference_follow_drawn_data(tmp_path):
    """The script of ttrace check --print-jobs decides as the command does."""
    folder = tmp_path / "run"
    programs = ["--reference", python(PROGRAM), "--candidate", torchrun(2, PROGRAM)]
    made = subprocess.run([TTRACE, "check", *programs, "--print-jobs", "-o", folder], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    done = subprocess.run(["bash", "-s"], input=made.stdout, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "rerouted").exists()
