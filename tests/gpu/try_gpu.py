"""Tries TTrace on one GPU: clean runs must pass, planted bugs must be found, and no bit may change.

    ./dev build --cuda; eval "$(./dev env)"; export LIBTTRACE_CUDA=$PWD/build/cpu/lib/libttrace_cuda.so
    python tests/gpu/try_gpu.py [--only REGEX] [--jobs 4] [--folder DIR]

Several ranks share the GPU over Gloo (shared_gpu.py) or MPI (megatron_mini); a single one uses NCCL. Every
row is a command whose exit code and output are known beforehand. What it printed is in DIR/NAME.log. Exit
code 1: a row is not as it must be. Rows of Megatron-core are left out where the package is not installed,
those of megatron_mini where it is not built. step_cost.py measures what tracing costs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DTENSOR = ROOT / "examples" / "dtensor"
MEGATRON = ROOT / "examples" / "megatron_core"
PROGRAMS = ROOT / "build" / "cpu" / "bin"
WITH_TF32 = "env TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1"


@dataclass(frozen=True)
class Row:
    name: str
    command: list[str]
    code: int
    pattern: str  # found in what it prints
    reference: str = ""  # of a check: its command


def alone(script: Path, options: str) -> str:
    return f"{sys.executable} {script} {options}"


def ranks(count: int, script: Path, options: str) -> str:
    launcher = f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node {count}"
    if count == 1:
        return f"{launcher} {script} {options} --device cuda"
    return f"{launcher} {HERE / 'shared_gpu.py'} {script} {options} --device cuda --backend gloo"


def check(name: str, reference: str, candidate: str, bug: str = "", says: str = "") -> Row:
    """`bug`: regular expression of the tensor where a planted bug diverges first; empty for a clean run.
    `says`: what a clean run prints instead of its number of operators."""
    command = ["ttrace", "check", "--details", "--candidate", candidate]
    if bug:
        return Row(name, command, 1, rf"DIVERGED  (?s:.*)\n  id         \S*{bug}", reference)
    return Row(name, command, 0, says or r"CLEAN: (?s:.*)operators: \d+ checked on their own, 0 wrong", reference)


def dtensor_rows(precision: str) -> list[Row]:
    script, planted = DTENSOR / "train.py", DTENSOR / "planted_bug.py"
    kind = f"--precision {precision}"
    host, gpu = alone(script, kind), alone(script, f"--device cuda {kind}")
    parallel = ranks(4, script, f"--fsdp --tp 2 --sp {kind}")
    not_summed = ranks(2, planted, f"row-output-not-summed --tp 2 {kind}")
    summed = ranks(2, planted, f"fsdp-gradients-summed --fsdp {kind}")
    name = f"dtensor_{precision}"
    return [
        check(name, gpu, parallel),
        check(f"{name}_nccl", gpu, ranks(1, script, f"--fsdp {kind}")),
        check(f"{name}_compiled", gpu, ranks(1, script, f"--fsdp --compile {kind}")),
        check(f"{name}_row_output_not_summed", gpu, not_summed, bug=r"/output/layers\.0\.attention\.wo"),
        check(f"{name}_gradients_summed", gpu, summed, bug=r"/main_grad/"),
        check(f"{name}_reference_on_the_host", host, parallel),
    ]


def megatron_rows(precision: str) -> list[Row]:
    script, planted = MEGATRON / "train.py", ROOT / "tests" / "python" / "megatron_bugs.py"
    kind = f"--precision {precision}"
    host, gpu = alone(script, kind), alone(script, f"--device cuda {kind}")
    scaled = ranks(2, planted, f"softmax-scale-of-one-rank --tp 2 {kind}")
    not_averaged = ranks(2, planted, f"gradients-not-averaged-over-dp {kind}")
    name = f"megatron_{precision}"
    return [
        check(name, gpu, ranks(4, script, f"--tp 2 {kind}")),
        check(f"{name}_nccl", gpu, ranks(1, script, f"--distributed-optimizer {kind}")),
        check(f"{name}_softmax_scale_of_one_rank", gpu, scaled, bug=r"core_attention"),
        check(f"{name}_gradients_not_averaged", gpu, not_averaged, bug=r"/main_grad/"),
        check(f"{name}_reference_on_the_host", host, ranks(2, script, f"--tp 2 {kind}")),
    ]


def mini_rows(precision: str) -> list[Row]:
    """megatron_mini and its reference in C++. Its bugs name the tensor where they diverge first."""
    program, kind = PROGRAMS / "megatron_mini", f"--config {ROOT}/examples/tiny.yaml --precision {precision}"
    host = f"{PROGRAMS}/ttrace_reference {kind}"
    gpu = f"{host} --device cuda"
    name = f"mini_{precision}"

    def mini(count: int, options: str) -> str:
        own = f"{program} {kind} --device cuda {options}"
        return f"{ROOT}/examples/megatron_mini/run_ranks {count} {own}"

    listed = subprocess.run([program, "--list-bugs"], stdout=subprocess.PIPE, check=True).stdout
    # Codes of FP8 come before the output that is computed from them.
    expected = {
        bug["name"]: bug["expected"].replace("/output/", "/(output|operand)/")
        for bug in map(json.loads, listed.splitlines())
    }
    planted = {"tp-forward-allreduce": 2, "sp-norm-grad": 2, "gather-order": 2, "dp-divisor": 4}
    parallel = "--backend mpi --tp 2 --sp"
    return [
        check(name, gpu, mini(4, parallel)),
        check(f"{name}_pipeline", gpu, mini(4, "--backend mpi --pp 2 --zero1")),
        check(f"{name}_context_parallel", gpu, mini(2, "--backend mpi --cp 2")),
        check(f"{name}_nccl", gpu, mini(1, "")),
        check(f"{name}_reference_on_the_host", host, mini(4, parallel)),
    ] + [
        check(f"{name}_{bug}", gpu, mini(count, f"{parallel} --bug {bug}"), bug=expected[bug])
        for bug, count in planted.items()
    ]


def tf32_rows() -> list[Row]:
    """Both runs in TF32 are compared by class defaults; a run with TF32 and one without are refused."""
    script, kind = DTENSOR / "train.py", "--precision f32"
    gpu, parallel = alone(script, f"--device cuda {kind}"), ranks(2, script, f"--fsdp {kind}")
    refused = "the reference multiplied in f32 and the candidate in tf32"
    return [
        check("tf32", f"{WITH_TF32} {gpu}", f"{WITH_TF32} {parallel}", says="multiply in tf32"),
        Row("tf32_of_one", ["ttrace", "check", "--candidate", f"{WITH_TF32} {parallel}"], 2, refused, gpu),
    ]


def bits_rows() -> list[Row]:
    kinds = {
        "bits_f32": "--precision f32",
        "bits_bf16": "--precision bf16",
        "bits_bf16_nccl": "--precision bf16 --nccl",
        "bits_bf16_graph": "--precision bf16 --graph",
        "bits_f32_compiled": "--precision f32 --compile",
    }
    return [
        Row(name, shlex.split(alone(HERE / "same_bits.py", options)), 0, r"same bits\n\Z")
        for name, options in kinds.items()
    ]


def all_rows() -> list[Row]:
    rows = bits_rows()
    for precision in ("bf16", "f32"):
        rows += dtensor_rows(precision)
        if importlib.util.find_spec("megatron") is not None:
            rows += megatron_rows(precision)
    if os.access(PROGRAMS / "megatron_mini", os.X_OK):
        rows += mini_rows("bf16") + mini_rows("f32") + mini_rows("fp8")
    return rows + tf32_rows()


def is_as_expected(row: Row, folder: Path, reference: str) -> bool:
    command = list(row.command)
    if reference:
        command += ["--reference", reference, "-o", str(folder / row.name)]
    start = time.monotonic()
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    (folder / f"{row.name}.log").write_text(f"{shlex.join(command)}\n\n{result.stdout}")
    good = result.returncode == row.code and re.search(row.pattern, result.stdout) is not None
    print(f"{'ok  ' if good else 'FAIL'} {time.monotonic() - start:5.0f} s  {row.name}", flush=True)
    if not good:
        print(f"      exit code {result.returncode}, expected {row.code} and {row.pattern!r}")
        print("\n".join("      " + line[:300] for line in result.stdout.splitlines()[-25:]), flush=True)
    return good


def run_all(rows: list[Row], folder: Path, jobs: int) -> list[bool]:
    """Each reference runs once, with its first row; the other rows take its trace."""
    makers: dict[str, Row] = {}
    for row in rows:
        if row.reference:
            makers.setdefault(row.reference, row)
    stored = {reference: str(folder / row.name / "reference") for reference, row in makers.items()}
    first = [row for row in rows if row is makers.get(row.reference, row)]
    others = [row for row in rows if row not in first]
    with ThreadPoolExecutor(jobs) as threads:
        good = list(threads.map(lambda row: is_as_expected(row, folder, row.reference), first))
        good += threads.map(lambda row: is_as_expected(row, folder, stored[row.reference]), others)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="regular expression of the names of rows")
    parser.add_argument("--jobs", type=int, default=4, help="rows that run at the same time")
    parser.add_argument("--folder", help="keeps traces and logs here; default: a folder that is removed")
    args = parser.parse_args()
    rows = [row for row in all_rows() if re.search(args.only, row.name)]
    if not rows:
        parser.error(f"no row has a name with {args.only}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(args.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        good = run_all(rows, folder, args.jobs)
    print(f"{sum(good)} of {len(good)} rows are as they must be")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
