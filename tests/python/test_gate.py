"""`ttrace gate` on pull requests that change the parallelism of a program in torch's own parallelism."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import HANG, PROGRAM, ROOT, python, torchrun


class Repository:
    """A program with a gate's file, in a folder of its own."""

    def __init__(self, folder: Path):
        self.folder = folder
        for script in ("train.py", "planted_bug.py"):
            shutil.copy(ROOT / "examples" / "dtensor" / script, folder)

    def gate(self, output: str, layout: str, ranks: int = 2) -> tuple[int, str]:
        """Its exit code, and what it prints."""
        (self.folder / "gate.yaml").write_text(
            "store: store\n"
            f"references: {{small: {{command: {python('train.py')}, made_from: [train.py], check: {{noise: 2}}}}}}\n"
            f"layouts: {{tp2: '{torchrun(ranks, layout)}'}}\n"
        )
        result = subprocess.run(
            [PROGRAM, "gate", "gate.yaml", "-o", output], cwd=self.folder, capture_output=True, text=True, timeout=HANG,
            check=False, env={**os.environ, "GITHUB_STEP_SUMMARY": str(self.folder / "job.md")},
        )  # fmt: skip
        return result.returncode, result.stdout + result.stderr

    def layout(self, output: str) -> dict:
        return json.loads((self.folder / output / "summary.json").read_text())["layouts"][0]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    repository = Repository(tmp_path_factory.mktemp("repository"))
    code, said = repository.gate("clean", "train.py --tp 2")
    assert code == 0, said
    assert "all of 1 layout within bound" in said
    return repository


def test_a_bug_fails_the_gate_with_its_operator_and_line_in_the_summary(repository):
    code, said = repository.gate("bug", "planted_bug.py row-output-not-summed --tp 2")
    assert code == 1, said
    layout = repository.layout("bug")
    assert layout["first_divergence"] == "s0/m0/output/layers.0.attention.wo/0"
    assert layout["source"].startswith("train.py:")
    assert "layers.0.attention.wo" in layout["operator"]
    for page in ("job.md", "bug/summary.md", "bug/summary.html"):
        text = (repository.folder / page).read_text()
        assert "train.py:" in text and "operator" in text and "layers.0.attention.wo" in text, page


def test_a_reference_that_the_pull_request_changes_is_refused(repository):
    with (repository.folder / "train.py").open("a") as script:
        script.write("# changed\n")
    code, said = repository.gate("stale", "train.py --tp 2")
    assert code == 2
    assert said.startswith("the stored reference small is stale: these files changed: train.py")
