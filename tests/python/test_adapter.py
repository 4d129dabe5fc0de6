"""The adapter, which the package compiles at its first import where it brings none for the torch that is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import ttrace
from conftest import HANG, PROGRAM

LIBRARIES = Path(os.environ["LIBTTRACE_TORCH"]).parent
FEATURES = Path(__file__).parent / "programs" / "features.py"
IMPORTED = "import ttrace, ttrace._library; print(ttrace._library.library_path())"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As a wheel that serves no version of torch is installed."""
    folder = tmp_path_factory.mktemp("package")
    subprocess.run(
        ["cmake", "--install", LIBRARIES.parent, "--component", "python", "--prefix", folder],
        check=True, capture_output=True, timeout=HANG,
    )  # fmt: skip
    shutil.copytree(ttrace.__path__[0], folder / "ttrace", dirs_exist_ok=True)
    (folder / "ttrace" / "lib").mkdir()
    shutil.copy(LIBRARIES / "libttrace.so", folder / "ttrace" / "lib")
    return folder


def environment(package: Path, cache: Path, **variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "LIBTTRACE_TORCH"}
    return {**kept, "PYTHONPATH": str(package), "XDG_CACHE_HOME": str(cache), **variables}


def start(package: Path, cache: Path, **variables: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", IMPORTED], env=environment(package, cache, **variables),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def compiled(package, tmp_path_factory) -> tuple[Path, str]:
    """The cache, and what two ranks that import the package at once say."""
    cache = tmp_path_factory.mktemp("cache")
    answers = [rank.communicate(timeout=HANG) for rank in [start(package, cache) for _ in range(2)]]
    assert len({path for path, _ in answers}) == 1 and answers[0][0].startswith(str(cache)), answers
    return cache, "".join(errors for _, errors in answers)


def test_of_two_ranks_that_import_at_once_one_compiles(compiled):
    _, said = compiled
    assert said.count("ttrace: compiling the adapter for torch " + torch.__version__) == 1


def test_a_second_import_compiles_nothing(package, compiled):
    cache, _ = compiled
    path, errors = start(package, cache, CXX="/nowhere/c++").communicate(timeout=HANG)
    assert path.startswith(str(cache)) and errors == ""


def test_a_program_is_checked_with_the_compiled_adapter(package, compiled, tmp_path):
    program = f"{sys.executable} {FEATURES}"
    result = subprocess.run(
        [PROGRAM, "check", "--noise", "2", "--reference", program, "--candidate", program, "-o", tmp_path / "run"],
        env=environment(package, compiled[0]), capture_output=True, text=True, timeout=HANG, check=False,
    )  # fmt: skip
    assert result.returncode == 0 and "CLEAN" in result.stdout, result.stdout + result.stderr


def test_a_machine_without_a_compiler_is_told_so(package, tmp_path):
    _, errors = start(package, tmp_path, CXX="/nowhere/c++").communicate(timeout=HANG)
    assert f"ImportError: this is torch {torch.__version__}" in errors
    assert "CXX names /nowhere/c++, which does not exist; install a C++ compiler" in errors


def test_a_compiler_that_fails_is_named_with_what_it_says(package, tmp_path):
    _, errors = start(package, tmp_path, CXX="false").communicate(timeout=HANG)
    assert "it does not compile here: `false` ends with it says nothing; install" in errors
    assert not list(tmp_path.rglob("*.so"))
