"""Every format of a report, read by a program that others wrote for it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import cmarkgfm
import jsonschema
import junitparser
import pytest
from conftest import HANG, PROGRAM, ROOT, python
from sarif_pydantic import Sarif

TRAIN = ROOT / "tests" / "frameworks" / "functional" / "train.py"
WITH_BUG = ROOT / "tests" / "frameworks" / "with_bug.py"
FORMATS = ("json", "jsonl", "junit", "markdown", "sarif")


class Reports:
    """Of one check, in all formats."""

    def __init__(self, folder: Path, candidate: str):
        self.files = {name: folder / f"report.{name}" for name in FORMATS}
        command = [
            PROGRAM, "check", "--steps", "0:1", "-o", str(folder / "run"),
            "--reference", python(str(TRAIN)), "--candidate", candidate,
            *(f"--format={name}={path}" for name, path in self.files.items()),
        ]  # fmt: skip
        self.code = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG).returncode
        self.json = json.loads(self.text("json"))

    def text(self, name: str) -> str:
        return self.files[name].read_text()


@pytest.fixture(scope="module", params=["clean", "diverged"])
def reports(request, tmp_path_factory) -> Reports:
    candidate = {"clean": str(TRAIN), "diverged": f"{WITH_BUG} functional scores-twice {TRAIN}"}[request.param]
    made = Reports(tmp_path_factory.mktemp(request.param), python(candidate))
    assert made.json["verdict"] == request.param
    return made


def test_every_line_of_json_lines_is_as_the_schema_says(reports):
    schema = json.loads((ROOT / "docs" / "report_lines.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    lines = [json.loads(line) for line in reports.text("jsonl").splitlines()]
    for line in lines:
        validator.validate(line)
    assert [line["type"] for line in (lines[0], lines[-1])] == ["report", "end"]
    assert lines[-1]["tensors"] == len(lines) - 2 == len(reports.json["tensors"])
    assert [line["id"] for line in lines[1:-1]] == [tensor["id"] for tensor in reports.json["tensors"]]


# Symptom: `golden.scale` was 0.0 in every tensor of every report for four days, and no page described it.
def test_every_field_of_the_json_report_is_in_the_schema(reports):
    schema = json.loads((ROOT / "docs" / "report_lines.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    header = {"type": "report", **reports.json}
    tensors = [{"type": "tensor", **tensor} for tensor in header.pop("tensors")]
    for line in (header, *tensors):
        validator.validate(line)
        assert set(line) <= set(schema["$defs"][line["type"]]["properties"])
    checks = [check for tensor in tensors for check in tensor["checks"]]
    assert set().union(*checks) <= set(schema["$defs"]["check"]["properties"])


def test_a_reader_of_junit_counts_the_findings(reports):
    suites = junitparser.JUnitXml.fromfile(str(reports.files["junit"]))
    assert suites.failures == sum(tensor["finding"] for tensor in reports.json["tensors"])
    assert suites.tests == len(reports.json["tensors"])


def test_a_reader_of_sarif_finds_the_line(reports):
    (run,) = Sarif.model_validate_json(reports.text("sarif")).runs
    if reports.code == 0:
        assert run.results == []
        return
    first = run.results[0]
    assert first.rule_id == reports.json["first_divergence"]["symptom"]
    place = first.locations[0].physical_location
    assert f"{place.artifact_location.uri}:{place.region.start_line}" in reports.json["first_divergence"]["source"]


def test_a_renderer_of_markdown_makes_a_table_of_the_findings(reports):
    page = cmarkgfm.github_flavored_markdown_to_html(reports.text("markdown"))
    assert "<h2>TTrace: " in page
    findings = [tensor["id"] for tensor in reports.json["tensors"] if tensor["finding"]]
    for name in findings[:20]:
        assert f"<td><code>{name}</code></td>" in page
