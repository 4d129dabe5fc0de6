"""examples/notebook/reading_traces.ipynb, cell by cell in a kernel, and what its cells compute."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import nbclient
import nbformat
import pytest
from conftest import HANG, PROGRAM, ROOT

NOTEBOOK = ROOT / "examples" / "notebook" / "reading_traces.ipynb"
WRONG = "s0/m0/output/layers.0.attention.wo/0"
COMPUTED = """
import json
print(json.dumps({
    "code": check.returncode,
    "printed": check.stdout,
    "tensors": [len(reference), len(candidate)],
    "shape": list(ours.shape),
    "array": [type(array).__module__, list(array.shape)],
    "same": same,
    "difference": float(difference),
    "between_ranks": between_ranks,
    "left_over": left_over,
    "findings": candidate[wrong].findings,
    "first": report.first_divergence.id,
    "outputs": [verdict.id for verdict in outputs],
    "errors": errors,
    "bounds": bounds,
    "at": at,
    "worst": [verdict.error / verdict.bound for verdict in worst],
    "folder": str(folder.parent),
}))
"""


@pytest.fixture(scope="module")
def run(programs, tmp_path_factory) -> tuple[nbformat.NotebookNode, dict]:
    """The notebook with its outputs, and its variables."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(COMPUTED))
    client = nbclient.NotebookClient(
        notebook, timeout=HANG, kernel_name="python3", resources={"metadata": {"path": str(NOTEBOOK.parent)}}
    )
    path = f"{programs}:{Path(PROGRAM).parent}:{os.environ['PATH']}"
    client.execute(env=os.environ | {"PATH": path, "TMPDIR": str(tmp_path_factory.mktemp("notebook"))})
    return notebook, json.loads(notebook.cells[-1].outputs[0].text)


def test_it_is_stored_without_outputs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert cells and all(not cell.outputs and cell.execution_count is None for cell in cells)


def test_it_makes_its_traces_itself(run):
    _, computed = run
    assert computed["code"] == 1 and "DIVERGED" in computed["printed"]
    assert all(count > 400 for count in computed["tensors"])
    assert Path(computed["folder"], "check", "candidate", "manifest.json").exists()


def test_a_tensor_is_put_together_from_its_parts(run):
    _, computed = run
    assert computed["shape"] == [8, 16, 128] and computed["same"]
    assert computed["array"] == ["numpy", [8, 16, 128]]
    assert computed["difference"] > 1e-3  # behind the bug


def test_the_ranks_hold_addends(run):
    """Which says what the bug is: nobody has summed them."""
    _, computed = run
    assert computed["between_ranks"] > 0.1 and computed["left_over"] < 1e-5
    assert "hold different values" in computed["findings"][0]


def test_errors_leave_the_bounds_at_the_first_divergence(run):
    _, computed = run
    at, outputs = computed["at"], computed["outputs"]
    within = [error <= bound for error, bound in zip(computed["errors"], computed["bounds"])]
    assert outputs[at] == computed["first"] == WRONG
    assert at > 3 and all(within[:at])
    assert not any(within[at:]) and len(outputs) > 30


def test_gradients_are_listed_from_the_worst(run):
    _, computed = run
    worst = computed["worst"]
    assert worst == sorted(worst, reverse=True) and worst[0] > 100


def test_cells_show_what_the_text_promises(run):
    notebook, _ = run
    shown = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    assert "rank 1: (8, 16, 64) at (0, 0, 64)" in shown
    assert f"first divergence: {WRONG}" in shown
    images = [
        output.data["image/png"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]
    assert len(images) == 1 and len(base64.b64decode(images[0])) > 10_000
