"""Tries TTrace on a GPU, of which one is enough: clean runs must pass, planted bugs must be found, and no bit may change.

    eval "$(./dev env)"; export LIBTTRACE_CUDA=$PWD/build/cpu/lib/libttrace_cuda.so    # after ./dev build --cuda
    python tests/gpu/try_gpu.py [--only REGEX] [--jobs 4] [--folder DIR]

Several ranks share the GPU over Gloo; a single one uses NCCL. Every row is a command whose exit code and output are
known beforehand. What it printed is in DIR/NAME.log. Exit code 1: a row is not as it must be. Rows of Megatron-core
are left out where the package is not installed. step_cost.py measures what tracing costs.
"""

from __future__ import annotations

import argparse
import importlib.util
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
GLOO = "--device cuda --backend gloo"


@dataclass(frozen=True)
class Row:
    name: str
    command: list[str]
    code: int
    pattern: str  # found in what it prints


def python(ranks: int, script: Path, options: str) -> str:
    launcher = f" -m torch.distributed.run --standalone --nproc-per-node {ranks}" if ranks else ""
    return f"{sys.executable}{launcher} {script} {options}"


def check(name: str, reference: str, candidate: str, *options: str, bug: str = "") -> Row:
    """`bug`: regular expression of the tensor where a planted bug diverges first; empty for a clean run."""
    command = ["ttrace", "check", "--reference", reference, "--candidate", candidate, *options]
    if bug:
        return Row(name, command, 1, rf"DIVERGED\nfirst divergence: \S*{bug}")
    return Row(name, command, 0, r"operators: \d+ checked on their own, 0 wrong")


def dtensor_rows() -> list[Row]:
    script, planted = DTENSOR / "train.py", DTENSOR / "planted_bug.py"
    rows = []
    for precision in ("bf16", "f32"):
        kind = f"--precision {precision}"
        reference = python(0, script, f"--device cuda {kind}")
        parallel = python(4, script, f"{GLOO} --fsdp --tp 2 --sp {kind}")
        rows += [
            check(f"dtensor_{precision}_nccl", reference, python(1, script, f"--device cuda --fsdp {kind}")),
            check(f"dtensor_{precision}", reference, parallel),
            check(f"dtensor_{precision}_cpu_reference", python(0, script, kind), parallel),
            check(
                f"dtensor_{precision}_row_output_not_summed",
                reference,
                python(2, planted, f"row-output-not-summed {GLOO} --tp 2 {kind}"),
                bug=r"/output/layers\.0\.attention\.wo/",
            ),
            check(
                f"dtensor_{precision}_gradients_summed",
                reference,
                python(2, planted, f"fsdp-gradients-summed {GLOO} --fsdp {kind}"),
                bug=r"/main_grad/",
            ),
        ]
        compiled = python(1, script, f"--device cuda --fsdp --compile {kind}")
        rows.append(check(f"dtensor_{precision}_compiled", reference, compiled))
    return rows


def megatron_rows() -> list[Row]:
    if importlib.util.find_spec("megatron") is None:
        print("there is no megatron-core here, so its rows are left out")
        return []
    script, planted = MEGATRON / "train.py", ROOT / "tests" / "python" / "megatron_bugs.py"
    rows = []
    for precision in ("bf16", "f32"):
        kind = f"--precision {precision}"
        reference = python(0, script, f"--device cuda {kind}")
        rows += [
            check(f"megatron_{precision}_nccl", reference, python(1, script, f"--device cuda {kind} --distributed-optimizer")),
            check(f"megatron_{precision}", reference, python(4, script, f"{GLOO} --tp 2 {kind}")),
            check(f"megatron_{precision}_cpu_reference", python(0, script, kind), python(2, script, f"{GLOO} --tp 2 {kind}")),
            check(
                f"megatron_{precision}_softmax_scale_of_one_rank",
                reference,
                python(2, planted, f"softmax-scale-of-one-rank {GLOO} --tp 2 {kind}"),
                bug=r"core_attention",
            ),
            check(
                f"megatron_{precision}_gradients_not_averaged",
                reference,
                python(2, planted, f"gradients-not-averaged-over-dp {GLOO} {kind}"),
                bug=r"/main_grad/",
            ),
        ]
    return rows


def bits_rows() -> list[Row]:
    kinds = {
        "bits_f32": "--precision f32",
        "bits_bf16": "--precision bf16",
        "bits_bf16_nccl": "--precision bf16 --nccl",
        "bits_bf16_graph": "--precision bf16 --graph",
        "bits_f32_compiled": "--precision f32 --compile",
    }
    return [
        Row(name, shlex.split(python(0, HERE / "same_bits.py", options)), 0, r"same bits\n\Z")
        for name, options in kinds.items()
    ]


def is_as_expected(row: Row, folder: Path) -> bool:
    command = list(row.command)
    if command[1] == "check":
        command += ["-o", str(folder / row.name)]
    start = time.monotonic()
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    (folder / f"{row.name}.log").write_text(f"{shlex.join(command)}\n\n{result.stdout}")
    good = result.returncode == row.code and re.search(row.pattern, result.stdout) is not None
    print(f"{'ok  ' if good else 'FAIL'} {time.monotonic() - start:5.0f} s  {row.name}", flush=True)
    if not good:
        tail = "\n".join("      " + line[:300] for line in result.stdout.splitlines()[-25:])
        print(f"      exit code {result.returncode}, expected {row.code} and {row.pattern!r}\n{tail}", flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="regular expression of the names of rows")
    parser.add_argument("--jobs", type=int, default=4, help="rows that run at the same time")
    parser.add_argument("--folder", help="keeps traces and logs here; default: a folder that is removed")
    args = parser.parse_args()
    rows = [row for row in (*bits_rows(), *dtensor_rows(), *megatron_rows()) if re.search(args.only, row.name)]
    if not rows:
        parser.error(f"no row has a name with {args.only}")
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(args.jobs) as threads:
        folder = Path(args.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        good = list(threads.map(lambda row: is_as_expected(row, folder), rows))
    print(f"{sum(good)} of {len(good)} rows are as they must be")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
