"""Installs a wheel of `./dev wheel` into a Debian or Ubuntu that has nothing but Python, and uses it there.

python tests/install/try_wheel.py WHEEL [--system NAME]... [--torch VERSION]... [--root DIR] [--log FILE]

For every system and version of torch, the system's own pip installs torch, the wheel, numpy and h5py inside of a chroot.
Then `ttrace check` runs examples/dtensor there, clean and with a planted bug, and a program that uses h5py.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TORCHES = ("2.15.0", "2.13.0", "2.9.1")
# What a build of TTrace needs and a wheel's user must not need. (Debian's package manager brings xxhash.)
FOREIGN = re.compile(
    r"lib(hdf5|boost_|fmt|spdlog|yaml-cpp|pugixml)[^/]*\.(so|a)|/s?bin/(gcc|g\+\+|cc|clang|cmake|make)$"
)
BUG = "row-output-not-summed"
FIRST_DIVERGENCE = "layers.0.attention.wo: output, step 0, micro-batch 0"


@dataclass(frozen=True)
class System:
    suite: str  # as debootstrap calls it
    mirror: str
    python: str  # the system's own
    options: tuple[str, ...] = ()


_DEBIAN = "http://deb.debian.org/debian"
_UBUNTU = "http://archive.ubuntu.com/ubuntu"
# The signatures of Ubuntu's archive are not among a Debian's keys; nothing that is unpacked outlives the trial.
_UNIVERSE = ("--components=main,universe", "--no-check-gpg")
SYSTEMS = {
    "Debian 12": System("bookworm", _DEBIAN, "3.11"),
    "Debian 13": System("trixie", _DEBIAN, "3.13"),
    "Ubuntu 22.04": System("jammy", _UBUNTU, "3.10", _UNIVERSE),
    "Ubuntu 24.04": System("noble", _UBUNTU, "3.12", _UNIVERSE),
}


class Skipped(Exception):
    """Why nothing can be tried on this machine."""


def first_problem() -> str:
    """Why no chroot can be made here; empty if one can."""
    if os.geteuid() != 0:
        return "a chroot needs root"
    for program in ("debootstrap", "unshare", "chroot"):
        if shutil.which(program) is None:
            return f"there is no {program}; install it (on Debian: apt-get install debootstrap)"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        return "this machine forbids mount namespaces (`unshare --mount true` fails)"
    return ""


@dataclass
class Answer:
    code: int
    output: str


class Chroot:
    """A system with Python and the module venv in `folder`."""

    def __init__(self, folder: Path, system: System):
        self.folder = folder
        self.system = system

    def make(self) -> None:
        packages = "python3,python3-venv,ca-certificates"
        command = [
            "debootstrap",
            "--variant=minbase",
            f"--include={packages}",
            *self.system.options,
            self.system.suite,
            str(self.folder),
            self.system.mirror,
        ]
        made = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if made.returncode != 0:
            raise Skipped(f"debootstrap failed: {made.stdout.strip().splitlines()[-1:]}")
        # An installed system has this file; torchrun asks for both names.
        hosts = f"127.0.0.1 localhost {socket.gethostname()}\n"
        (self.folder / "etc" / "hosts").write_text(hosts, encoding="utf-8")

    def run(self, command: str) -> Answer:
        """A line of shell in the chroot, whose processes end with it; nothing of our environment gets in."""
        inside = 'mount --bind /dev "$0/dev" && mount -t proc proc "$0/proc" && exec chroot "$0" sh -c "$1"'
        process = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "sh", "-c", inside, str(self.folder), command],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        return Answer(process.returncode, process.stdout)

    def must(self, command: str) -> str:
        answer = self.run(command)
        if answer.code != 0:
            raise RuntimeError(f"`{command}` failed in the chroot:\n{answer.output[-3000:]}")
        return answer.output

    def foreign_files(self) -> list[str]:
        """Compilers and libraries whose absence makes the trial mean something."""
        files = self.must("find / -xdev ! -path '/proc/*' ! -path '/dev/*'").splitlines()
        return [path for path in files if FOREIGN.search(path)]


@dataclass
class Trial:
    """What came of the wheel on one system with one version of torch."""

    system: str
    torch: str
    seconds: float = 0  # from `pip install` of the wheel, with torch there, to the located bug
    clean: str = ""
    bug: str = ""
    h5py: str = ""
    log: str = ""

    @property
    def passed(self) -> bool:
        return self.clean == "within bound" and self.bug == "found" and self.h5py == "within bound"


def download(packages: list[str], python: str, folder: Path) -> None:
    """Wheels for the Python of another system, by the pip (and its settings) of this interpreter. A limit of this machine on torch
    is for what is installed here."""
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--python-version", python,
         "--only-binary", ":all:", "-d", str(folder), *packages],
        check=True, stdout=sys.stderr, env={**os.environ, "PIP_CONSTRAINT": "/dev/null"},
    )  # fmt: skip


def install(chroot: Chroot, wheel: Path, torch: str) -> float:
    """Returns the seconds of `pip install` of the wheel."""
    wheels = chroot.folder / "wheels"
    try:
        # pip asks for its own Python whether torch needs setuptools; from 3.12 on it does.
        download([f"torch=={torch}", "numpy", "h5py", "setuptools"], chroot.system.python, wheels)
        shutil.copy(wheel, wheels)
        chroot.must("rm -rf /venv && python3 -m venv /venv")
        pip = "/venv/bin/pip install --quiet --no-cache-dir --no-index --find-links /wheels"
        chroot.must(f"{pip} torch=={torch} numpy")
        foreign = chroot.foreign_files()
        if foreign:
            raise RuntimeError(f"the chroot has {', '.join(foreign)}, so that this trial would prove nothing")
        began = time.monotonic()
        chroot.must(f"{pip} /wheels/{wheel.name}")
        seconds = time.monotonic() - began
        chroot.must(f"{pip} h5py")
        return seconds
    finally:
        shutil.rmtree(wheels, ignore_errors=True)


def verdict(answer: Answer) -> str:
    return (
        "within bound" if answer.code == 0 and "CLEAN" in answer.output else f"exit code {answer.code}"
    )


def try_torch(chroot: Chroot, wheel: Path, system: str, torch: str) -> Trial:
    installing = install(chroot, wheel, torch)
    trial = Trial(system, chroot.must("/venv/bin/python -c 'import torch; print(torch.__version__)'").strip())
    began = time.monotonic()
    here = "cd /work && PATH=/venv/bin:$PATH"
    clean = chroot.run(
        f"{here} ttrace check --noise 2 --reference 'python dtensor/train.py' "
        "--candidate 'torchrun --nproc-per-node 2 dtensor/train.py --tp 2' -o /work/clean"
    )
    trial.clean = verdict(clean)
    bug = chroot.run(
        f"{here} ttrace check --noise 2 --reference /work/clean/reference --rerun 'python dtensor/train.py' "
        f"--candidate 'torchrun --nproc-per-node 2 dtensor/planted_bug.py {BUG} --tp 2' -o /work/bug"
    )
    located = f"DIVERGED  {FIRST_DIVERGENCE}" in bug.output
    trial.bug = "found" if bug.code == 1 and located else f"exit code {bug.code}"
    trial.seconds = installing + time.monotonic() - began
    answers = [clean, bug]
    trial.h5py = "within bound"
    for order in ("h5py-first", "ttrace-first"):
        program = f"python beside_h5py.py {order} /work/{order}.h5"
        answer = chroot.run(
            f"{here} ttrace check --noise 2 --reference '{program}' --candidate '{program}' -o /work/{order}"
        )
        logs = chroot.run(f"cat /work/{order}/logs/candidate.log")
        answers += [answer, logs]
        if verdict(answer) != "within bound":
            trial.h5py = verdict(answer)
    trial.log = "\n".join(answer.output for answer in answers)
    return trial


def tried(chroot: Chroot, wheel: Path, system: str, torch: str) -> Trial:
    """One that cannot be made is a row as well, and the others follow."""
    try:
        return try_torch(chroot, wheel, system, torch)
    except (RuntimeError, subprocess.CalledProcessError) as error:
        return Trial(system, torch, clean="not installed", log=str(error))


def try_wheel(wheel: Path, systems: Sequence[str], torches: Sequence[str], root: Path | None = None) -> list[Trial]:
    """One trial for every system and version of torch. `root` keeps the systems for the next time. Raises Skipped where
    no chroot can be made."""
    problem = first_problem()
    if problem:
        raise Skipped(problem)
    trials = []
    with tempfile.TemporaryDirectory(prefix="ttrace-wheel-") as folder:
        for name in systems:
            chroot = Chroot((root or Path(folder)) / SYSTEMS[name].suite, SYSTEMS[name])
            if not (chroot.folder / "complete").exists():
                chroot.make()
                (chroot.folder / "complete").touch()
            for torch in torches:
                work = chroot.folder / "work"
                shutil.rmtree(work, ignore_errors=True)
                shutil.copytree(ROOT / "examples" / "dtensor", work / "dtensor")
                shutil.copy(HERE / "beside_h5py.py", work)
                trials.append(tried(chroot, wheel, name, torch))
                print(row(trials[-1]), file=sys.stderr, flush=True)
            if not root:
                shutil.rmtree(chroot.folder)
    return trials


def row(t: Trial) -> str:
    return f"| {t.system} | {t.torch} | {t.clean} | {t.bug} | {t.h5py} | {t.seconds:.0f} |"


def table(wheel: Path, trials: list[Trial]) -> str:
    tag = wheel.stem.split("-", 2)[2]
    lines = [f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, tag {tag}", ""]
    lines += ["| system | torch | examples/dtensor, clean | with a planted bug | with h5py | seconds to the bug |", "|---|---|---|---|---|---|"]
    return "\n".join([*lines, *map(row, trials)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--system", action="append", choices=SYSTEMS, help="default: Debian 12")
    parser.add_argument("--torch", action="append", metavar="VERSION", help=f"default: {', '.join(TORCHES)}")
    parser.add_argument("--root", type=Path, help="keep the systems there, and use them if they are there")
    parser.add_argument("--log", type=Path, help="write there what the checks printed")
    arguments = parser.parse_args()
    if not arguments.wheel.exists():
        parser.error(f"{arguments.wheel} does not exist; `./dev wheel` makes it")
    try:
        trials = try_wheel(arguments.wheel, arguments.system or ["Debian 12"], arguments.torch or TORCHES, arguments.root)
    except Skipped as reason:
        print(f"SKIPPED: {reason}")
        return 0
    if arguments.log:
        arguments.log.write_text("\n".join(trial.log for trial in trials), encoding="utf-8")
    print(table(arguments.wheel, trials))
    failed = [trial for trial in trials if not trial.passed]
    for trial in failed:
        print(f"\ntorch {trial.torch}:\n{trial.log[-6000:]}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
