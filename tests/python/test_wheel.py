"""The package as `pip install` builds it, in a virtual environment that has torch and nothing of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import HANG, ROOT

FEATURES = Path(__file__).parent / "programs" / "features.py"


def clean_environment() -> dict[str, str]:
    ours = ("PYTHONPATH", "LIBTTRACE_TORCH", "TTRACE_PROGRAM")
    return {k: v for k, v in os.environ.items() if k not in ours and not k.startswith("TTRACE_")}


def run(*command: str | Path, timeout: int = HANG) -> str:
    result = subprocess.run(
        [str(word) for word in command],
        capture_output=True, text=True, timeout=timeout, check=False, env=clean_environment(), cwd="/",
    )  # fmt: skip
    assert result.returncode == 0, (result.stdout + result.stderr)[-4000:]
    return result.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment's folder of programs."""
    folder = tmp_path_factory.mktemp("wheel")
    # As deep in the checkout as the build of these tests, and new, so that ccache has compiled every file before.
    # A folder that is left over may have other precompiled headers.
    build = ROOT / "build" / "wheel"
    shutil.rmtree(build, ignore_errors=True)
    run(
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
        "-C", f"build-dir={build}", "-w", folder, ROOT,
    )  # fmt: skip
    run(sys.executable, "-m", "venv", folder / "venv")
    [site] = (folder / "venv" / "lib").glob("python*/site-packages")
    (site / "torch.pth").write_text(str(Path(torch.__file__).parents[1]) + "\n")
    [wheel] = folder.glob("ttrace_torch-*.whl")
    bin_folder = folder / "venv" / "bin"
    run(bin_folder / "python", "-m", "pip", "install", "--quiet", "--no-deps", wheel)
    return bin_folder


def test_the_source_distribution_has_all_that_a_build_needs(tmp_path):
    run(
        sys.executable, "-c",
        f"import os, scikit_build_core.build as b; os.chdir({str(ROOT)!r}); b.build_sdist({str(tmp_path)!r})",
    )  # fmt: skip
    [archive] = tmp_path.glob("ttrace_torch-*.tar.gz")
    shutil.unpack_archive(archive, tmp_path, filter="data")
    sources = tmp_path / archive.name.removesuffix(".tar.gz")
    assert {"LICENSE", "README.md", "python"} <= {entry.name for entry in sources.iterdir()}
    run(
        "cmake", "-S", sources, "-B", tmp_path / "build", "-G", "Ninja",
        "-DTTRACE_TESTS=OFF", "-DTTRACE_EXAMPLES=OFF", f"-DTTRACE_PYTHON={sys.executable}",
    )  # fmt: skip


def test_the_package_has_its_name_version_and_license(installed):
    code = "from importlib.metadata import metadata as m; d = m('ttrace-torch'); print(d['Version'], d['License-Expression'])"
    version, license_name = run(installed / "python", "-c", code).split()
    assert run(installed / "ttrace", "--version").split() == ["ttrace", version]
    assert license_name == "Apache-2.0"


def test_the_package_loads_its_own_library(installed):
    code = "import ttrace, ttrace._library as l; print(l.library_path())"
    path = Path(run(installed / "python", "-c", code).strip())
    assert path.is_relative_to(installed.parent) and path.name == "libttrace_torch.so"
    assert path.parent.name == "torch-" + ".".join(torch.__version__.split(".")[:2])


def test_a_program_is_checked_by_the_installed_command(installed, tmp_path):
    program = f"{installed / 'python'} {FEATURES}"
    text = run(
        installed / "ttrace", "check", "--reference", program, "--candidate", program,
        "-o", tmp_path / "run",
    )  # fmt: skip
    assert "CLEAN" in text
