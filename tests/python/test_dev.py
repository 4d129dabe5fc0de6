"""./dev on machines that lack something: what it says, and that it stops there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import HANG, ROOT

TOOLS = ("bash", "dirname", "awk", "mkdir", "rm", "tail", "cat", "env", "nproc", "touch")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A checkout that has what ./dev reads, beside a folder `bin` with all programs of the machine."""
    (tmp_path / "cmake").mkdir()
    shutil.copy(ROOT / "dev", tmp_path)
    shutil.copy(ROOT / "cmake" / "packages.txt", tmp_path / "cmake")
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    return tmp_path


def program(machine: Path, name: str, text: str) -> None:
    file = machine / "bin" / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o700)


def dev(machine: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [machine / "dev", *arguments],
        capture_output=True, text=True, check=False, timeout=HANG, env={"PATH": str(machine / "bin")},
    )  # fmt: skip


def test_without_apt_one_message_has_all_packages_by_both_names(machine):
    """One package was named per try."""
    result = dev(machine, "setup")
    assert result.returncode == 2
    [message] = result.stderr.splitlines()
    for name in ("libhdf5-dev", "hdf5-devel", "libpugixml-dev", "pugixml-devel", "openmpi-bin", "TTRACE_NO_APT=1"):
        assert name in message


def test_missing_packages_are_named_where_nobody_is_root(machine):
    program(machine, "dpkg-query", 'case "$*" in *libfmt-dev* | *ccache*) exit 1 ;; esac; printf installed')
    program(machine, "python3", 'mkdir -p .venv/bin && printf "#!/bin/sh\\nexit 0" > .venv/bin/python && chmod 700 .venv/bin/python')
    (machine / "bin" / "chmod").symlink_to(shutil.which("chmod"))
    # EUID cannot be set: another user runs the script.
    script = (machine / "dev").read_text().replace("((EUID != 0))", "((1))")
    (machine / "dev").write_text(script)
    result = dev(machine, "setup")
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].endswith("needs root: apt-get install ccache libfmt-dev")
    program(machine, "dpkg-query", "printf installed")
    assert dev(machine, "setup").returncode == 0, "no root is needed where all packages are there"


def test_the_demo_stops_where_torch_cannot_be_installed(machine):
    """The demo ran on without torch and ended in "ttrace: command not found"."""
    program(machine, "dpkg-query", "printf installed")
    program(machine, "python3", 'mkdir -p .venv/bin && printf "#!/bin/sh\\necho no torch here >&2; exit 1" > .venv/bin/python && chmod 700 .venv/bin/python')
    program(machine, "cmake", "echo cmake ran >&2")
    (machine / "bin" / "chmod").symlink_to(shutil.which("chmod"))
    result = dev(machine, "demo")
    assert result.returncode != 0
    assert "no torch here" in result.stderr and "cmake ran" not in result.stderr
    assert "clean parallel run" not in result.stderr


def test_what_a_step_prints_is_shown_only_if_it_fails(machine):
    """487 of 564 lines that the demo printed came from apt and ninja."""
    program(machine, "dpkg-query", 'case "$*" in *ccache*) exit 1 ;; esac; printf installed')
    program(machine, "sudo", 'exec "$@"')
    program(machine, "apt-get", 'echo "Unpacking a lot"; test "$1" = update')
    result = dev(machine, "setup")
    assert result.returncode != 0
    assert result.stderr.count("Unpacking a lot") == 1, result.stderr
    assert "this failed: installing ccache" in result.stderr
