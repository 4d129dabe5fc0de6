"""What a type checker tells a user of the package: the annotations in the sources, which py.typed offers, are its stubs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="mypy is not installed (./dev test installs it)")

PROGRAM = """\
import torch
import ttrace

model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
tracer = ttrace.attach(model, optimizer=optimizer)
reveal_type(tracer)
with tracer.step(0) as step:
    reveal_type(step)
    step.loss(model(torch.ones(2)))
reveal_type(ttrace.dtype(torch.bfloat16))
reveal_type(ttrace.precision("bf16"))
reveal_type(ttrace.open("run"))
report = ttrace.check(reference="python a.py", candidate="torchrun b.py")
reveal_type(report)
reveal_type(report.verdict)
"""
TYPES = ["ttrace.tracer.Tracer", "ttrace.tracer.TracedStep", "torch._C.dtype", "str", "ttrace.reading.Trace",
         "ttrace.reading.Report", "str"]  # fmt: skip
ERRORS = {
    "ttrace.dtyp(torch.bfloat16)": "attr-defined",
    'tracer.step("first")': "arg-type",
    'ttrace.check(refrence="python a.py")': "call-arg",
    "report.verdict + 1": "operator",
}


def checked(program: str, folder: Path) -> tuple[int, str]:
    """Exit code and output of mypy, which is silent on what the program imports."""
    file = folder / "program.py"
    file.write_text(program)
    package = Path(__file__).resolve().parents[2] / "python"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", "--cache-dir", str(folder / "cache"), str(file)],
        capture_output=True, text=True, cwd=folder, check=False, env={**os.environ, "MYPYPATH": str(package)},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its cache serves all tests of this file."""
    return tmp_path_factory.mktemp("mypy")


def test_names_of_the_package_have_types(folder: Path) -> None:
    code, output = checked(PROGRAM, folder)
    assert code == 0, output
    assert re.findall(r'Revealed type is "([^"]*)"', output) == TYPES, output


@pytest.mark.parametrize("line", ERRORS)
def test_wrong_use_is_an_error(line: str, folder: Path) -> None:
    code, output = checked(PROGRAM + line + "\n", folder)
    assert code == 1, output
    errors = re.findall(r"program\.py:(\d+): error: .*\[([a-z-]+)\]", output)
    assert errors == [(str(len(PROGRAM.splitlines()) + 1), ERRORS[line])], output
