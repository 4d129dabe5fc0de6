"""`ttrace.open` and `ttrace.diff`, of notebooks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
import ttrace
from conftest import ROOT, Checker, python, torchrun

TRAIN = str(ROOT / "examples" / "dtensor" / "train.py")
PATCHED = str(ROOT / "examples" / "dtensor" / "planted_bug.py")
WEIGHT = "s0/main_grad/layers.0.feed_forward.w2.weight/0"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    check = Checker(tmp_path_factory.mktemp("reading"))
    outcome = check(python(TRAIN), torchrun(2, f"{TRAIN} --tp 2"), steps="0:1")
    assert outcome.code == 0, outcome.summary()
    return outcome.folder


def test_records_come_in_the_order_of_execution(run):
    trace = ttrace.open(run / "candidate")
    names = list(trace)
    assert len(trace) == len(names) > 100
    outputs = [name for name in names if "/output/layers." in name and name.endswith(".feed_forward.w2/0")]
    assert outputs == sorted(outputs) and len(outputs) == 4
    assert names.index("s0/param/layers.0.feed_forward.w2.weight/0") < names.index(outputs[0]) < names.index(WEIGHT)
    assert trace.steps == [0] and trace.manifest["world_size"] == 2


def test_parts_are_put_back_into_single_device_layout(run):
    reference, candidate = ttrace.open(run / "reference"), ttrace.open(run / "candidate")
    whole, cut = reference[WEIGHT].merged(), candidate[WEIGHT]
    assert cut.shape == tuple(whole.shape) and len(cut.parts) == 2
    merged = cut.merged()
    torch.testing.assert_close(merged, whole)
    for part in cut.parts:
        assert part.shape != cut.shape
        (box,) = cut.boxes(part.rank)
        here = tuple(slice(start, start + extent) for start, extent in zip(box.logical_start, box.extent))
        assert torch.equal(merged[here], cut.local(part.rank))
    assert merged.numpy().shape == cut.shape


def test_find_takes_a_pattern(run):
    trace = ttrace.open(run / "candidate")
    found = trace.find(r"main_grad/layers\.0\..*w2\.weight")
    assert [record.id for record in found] == [WEIGHT]


def test_what_is_not_there_is_named(run, tmp_path):
    with pytest.raises(ttrace.TraceError, match="nowhere"):
        ttrace.open(tmp_path / "nowhere")
    trace = ttrace.open(run / "candidate")
    with pytest.raises(ttrace.TraceError, match="has no tensor s0/m0/output/none/0"):
        trace["s0/m0/output/none/0"]
    with pytest.raises(ttrace.TraceError, match="rank 7 of .* has no tensor"):
        trace[WEIGHT].local(7)


def test_an_interrupted_trace_needs_to_be_asked_for(run, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(run / "candidate", broken)
    (broken / "step000000" / "rank00001.h5").unlink()
    with pytest.raises(ttrace.TraceError, match="rank00001"):
        ttrace.open(broken)
    trace = ttrace.open(broken, partial=True)
    assert [part.rank for part in trace[WEIGHT].parts] == [0]
    assert any("rank 1" in note for note in trace.notes)
    with pytest.raises(ttrace.TraceError, match="make no tensor"):
        trace[WEIGHT].merged()


def test_a_clean_comparison_is_a_report(run):
    report = ttrace.diff(run / "reference", run / "candidate")
    assert report.verdict == "clean" and not report.diverged and report.first_divergence is None
    assert report.findings == [] and report.counts["tensors"] == len(report)
    verdict = report[WEIGHT]
    assert verdict.status == "within" and verdict.error < verdict.bound
    assert {check.question for check in verdict.checks} >= {"structure", "whole"}


def test_a_diverged_comparison_names_what_is_wrong(check):
    outcome = check(python(TRAIN), torchrun(2, f"{PATCHED} row-output-not-summed --tp 2"), steps="0:1")
    report = ttrace.diff(outcome.folder)
    assert report.diverged and report.first_divergence.id == outcome.first
    assert report.findings[0].id == outcome.first
    assert report.first_divergence.signature == outcome.report["first_divergence"]["signature"]
    assert "diverged" in repr(report)


def test_traces_that_cannot_be_compared_say_why(run, tmp_path):
    with pytest.raises(ttrace.TraceError, match="nowhere"):
        ttrace.diff(run / "reference", tmp_path / "nowhere")
