"""Compiles the adapter: libttrace_torch.so, the part of TTrace that includes LibTorch, for one version of torch.

torch's C++ interface changes between minor versions, so each needs an adapter of its own. A wheel brings those of the versions that
existed when it was made, and the adapter's sources for all others. `./dev wheel` makes the former with this file, too:

    python _adapter.py SOURCES CORE TORCH OUTPUT [RPATH...]
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

NAME = "libttrace_torch.so"
# -Og takes the compiler half the time of -O2: loops over elements are in libttrace.so. NDEBUG: at::RecordFunction has members without
# it, and the released torch was built with it.
_FLAGS = ("-std=c++20", "-Og", "-fPIC", "-fno-semantic-interposition", "-fopenmp-simd", "-DNDEBUG", "-DUSE_DISTRIBUTED")
_GIGABYTES_OF_A_UNIT = 2.5


class CannotCompile(Exception):
    """One sentence: why there is no adapter."""


def compiler() -> str:
    """The C++ compiler that CXX names, or the system's. Raises CannotCompile."""
    named = os.environ.get("CXX")
    for word in [named] if named else ["c++", "g++", "clang++"]:
        if shutil.which(shlex.split(word)[0]):
            return word
    where = f"CXX names {named}, which does not exist" if named else "there is no c++, g++ or clang++"
    raise CannotCompile(f"it cannot be compiled here, because {where}")


def _processes() -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").split("MemAvailable:")
        free = int(lines[1].split()[0]) / 1e6
        return max(1, min(os.cpu_count() or 1, int(free / _GIGABYTES_OF_A_UNIT)))
    return 1


def _run(command: Sequence[str | Path]) -> None:
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        errors = [line for line in result.stderr.splitlines() if "error" in line] or result.stderr.splitlines() or ["it says nothing"]
        raise CannotCompile(f"it does not compile here: `{command[0]}` ends with {errors[0].strip()}")


def compile_adapter(sources: Path, core: Path, torch: Path, output: Path, rpath: Sequence[str]) -> None:
    """Writes `output` for the torch package in the folder `torch`. `sources` has include/, trace/ and hooks/; `core` is libttrace.so;
    `rpath` are the folders in which the system's loader looks for `core` and for torch. CXXFLAGS and LDFLAGS are respected.
    Raises CannotCompile."""
    command = shlex.split(compiler())
    # The files of a folder are compiled as one, which parses torch's headers once.
    rooms = {}
    for file in sorted((sources / "hooks").glob("*/*.cpp")):
        rooms.setdefault(file.parent.name, []).append(file)
    includes = [f"-I{sources}", f"-I{sources / 'include'}"]
    includes += [word for path in ("", "torch/csrc/api/include") for word in ("-isystem", torch / "include" / path)]
    with tempfile.TemporaryDirectory(prefix="ttrace-adapter-") as folder:

        def compiled(room: str) -> Path:
            unit, made = Path(folder, f"{room}.cpp"), Path(folder, f"{room}.o")
            unit.write_text("".join(f'#include "{file}"\n' for file in rooms[room]), encoding="utf-8")
            _run([*command, *_FLAGS, *shlex.split(os.environ.get("CXXFLAGS", "")), *includes, "-c", unit, "-o", made])
            return made

        with ThreadPoolExecutor(_processes()) as pool:
            objects = list(pool.map(compiled, rooms))
        library = Path(folder, NAME)
        _run([
            *command, "-shared", "-o", library, *objects, core, torch / "lib" / "libtorch_cpu.so", torch / "lib" / "libc10.so", "-ldl", "-Wl,-z,defs",
            f"-Wl,--version-script={sources / 'cmake' / 'exports.map'}", *(f"-Wl,-rpath,{path}" for path in rpath),
            *shlex.split(os.environ.get("LDFLAGS", "")),
        ])  # fmt: skip
        output.parent.mkdir(parents=True, exist_ok=True)
        # Another process sees the whole file or none.
        whole = output.with_name(f"{NAME}.{os.getpid()}")
        shutil.copy(library, whole)
        whole.replace(output)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process of this machine at a time: all ranks of a run import the package at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def cached_adapter(sources: Path, core: Path, torch: Path, version: str) -> Path:
    """The adapter for an installed torch, compiled unless this user's cache has it. Raises CannotCompile."""
    if not (sources / "hooks").is_dir():
        raise CannotCompile(f"{sources} has no sources to compile it from")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ttrace"
    key = hashlib.sha256(core.read_bytes() + f"{core}\n{torch}\n{version}".encode()).hexdigest()[:16]
    library = cache / f"torch-{version}-{key}" / NAME
    if library.exists():
        return library
    command = compiler()
    try:
        with _alone(cache / f"{key}.lock"):
            if not library.exists():
                print(f"ttrace: compiling the adapter for torch {version} by {command}, once; this takes about a minute", file=sys.stderr, flush=True)
                began = time.monotonic()
                compile_adapter(sources, core, torch, library, [str(core.parent), str(torch / "lib")])
                print(f"ttrace: {library} was compiled in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    except OSError as error:
        raise CannotCompile(f"it cannot be compiled here: {error}; XDG_CACHE_HOME names another folder for it") from error
    return library


if __name__ == "__main__":
    try:
        compile_adapter(*(Path(word).resolve() for word in sys.argv[1:5]), rpath=sys.argv[5:])
    except CannotCompile as reason:
        sys.exit(f"{sys.argv[4]}: {reason}")
