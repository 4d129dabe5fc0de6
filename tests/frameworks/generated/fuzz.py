"""Checks clean runs of random programs: options of training scripts, and operator graphs cut by DTensor.

    ./dev fuzz-programs N SEED [--kind graphs|dtensor|megatron-core] [--precision P] [--keep DIR]
    ./dev fuzz-programs --kind graphs --case TEXT

Case i of a run follows from SEED + i alone. No clean program may raise an alarm. One that does is shrunk while it still
fails, and printed: a graph as a script that runs by itself, options as the command that checks them. Placements that
DTensor itself refuses are counted and left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python")]

import graphs  # noqa: E402
from conftest import Checker, Outcome, python, torchrun  # noqa: E402
from options import PROGRAMS, Program  # noqa: E402

CLEAN, ALARM, ERROR, REFUSED = "clean", "ALARM", "ERROR", "refused"


@dataclass
class Result:
    judgement: str
    detail: str = ""
    tensors: int = 0


def judge(outcome: Outcome) -> Result:
    tensors = (outcome.report or {}).get("counts", {}).get("tensors", 0)
    if outcome.code == 0:
        return Result(CLEAN, tensors=tensors)
    if outcome.code == 1:
        first = outcome.report["first_divergence"] or {}
        return Result(ALARM, f"{first.get('id')}: {first.get('cause')}", tensors)
    return Result(ERROR, (outcome.errors.strip().splitlines() or ["no message"])[-1])


class Graphs:
    """Operator graphs."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.scripts = 0

    def missing(self) -> str:
        return ""

    def draw(self, seed: int, precision: str | None):
        return graphs.draw(seed, precision)

    def text(self, graph) -> str:
        return graph.text()

    def case_of(self, text: str):
        return graphs.graph_of(text)

    def smaller(self, graph) -> Iterator:
        return graphs.smaller(graph)

    def run(self, graph, check: Checker) -> Result:
        self.scripts += 1
        script = self.folder / f"graph{self.scripts}.py"
        script.write_text(graphs.script_of(graph))
        refusal = self._refusal(torchrun(graph.ranks, str(script)))
        if refusal:
            return Result(REFUSED, refusal)
        return judge(check(python(str(script)), torchrun(graph.ranks, str(script)), steps="0:1"))

    @staticmethod
    def _refusal(command: str) -> str:
        """What DTensor says of placements that it cannot compute with; empty where the script runs."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TTRACE_")}
        run = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, env=environment)
        if run.returncode == 0:
            return ""
        errors = [line for line in run.stderr.splitlines() if "Error: " in line and "torch.distributed.elastic" not in line]
        return (errors or ["no message"])[0].split("]:", 1)[-1]

    def print(self, graph) -> str:
        return graphs.script_of(graph)


class Options:
    """Options of a training script."""

    def __init__(self, program: Program):
        self.program = program

    def missing(self) -> str:
        needs = self.program.needs
        return needs if needs and importlib.util.find_spec(needs.partition(".")[0]) is None else ""

    def draw(self, seed: int, precision: str | None):
        return self.program.draw(seed, precision)

    def text(self, case) -> str:
        return self.program.text(case)

    def case_of(self, text: str):
        return self.program.case_of(text)

    def smaller(self, case) -> Iterator:
        return self.program.smaller(case)

    def commands(self, case) -> tuple[str, str]:
        """Scripts with options, of the reference and of the candidate."""
        both = f"{self.program.script} {self.program.common(case)}"
        return f"{both} {self.program.reference(case)}".strip(), f"{both} {self.program.candidate(case)}".strip()

    def run(self, case, check: Checker) -> Result:
        reference, candidate = self.commands(case)
        steps = f"0:{case['steps']}"
        return judge(check(python(reference), torchrun(self.program.ranks(case), candidate), steps=steps))

    def print(self, case) -> str:
        reference, candidate = self.commands(case)
        ranks = self.program.ranks(case)
        return (
            f'ttrace check --steps 0:{case["steps"]} --reference "python {reference}" \\\n'
            f'    --candidate "torchrun --nproc-per-node {ranks} {candidate}"'
        )


def shrunk(kind, case, result: Result, check: Checker, tries: int):
    """The smallest case found that fails in the same way, and how it fails."""
    tried = {kind.text(case)}
    while tries > 0:
        for simpler in kind.smaller(case):
            if kind.text(simpler) in tried:
                continue
            tried.add(kind.text(simpler))
            tries -= 1
            found = kind.run(simpler, check)
            if found.judgement == result.judgement:
                case, result = simpler, found
                break
            if tries == 0:
                break
        else:
            return case, result
    return case, result


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("count", type=int, nargs="?", default=0, metavar="N", help="number of cases")
    add("seed", type=int, nargs="?", default=1, metavar="SEED", help="seed of the first case")
    add("--kind", action="append", choices=["graphs", *PROGRAMS], help="only this one; may be repeated")
    add("--precision", choices=["f64", "f32", "bf16"], help="only in this precision")
    add("--case", help="text of one case of the kind, instead of random ones")
    add("--tries", type=int, default=60, help="number of checks that shrinking a failure may take (default: 60)")
    add("--keep", type=Path, help="keep traces, logs and reports in this folder")
    args = parser.parse_args()
    if args.case is not None and (args.kind is None or len(args.kind) != 1):
        parser.error("--case needs one --kind")
    if args.case is None and args.count < 1:
        parser.error("give a number of cases and a seed, or --case TEXT")
    return args


def run_kind(name: str, args: argparse.Namespace, folder: Path) -> Counter:
    folder.mkdir(parents=True, exist_ok=True)
    kind = Graphs(folder) if name == "graphs" else Options(PROGRAMS[name])
    if kind.missing():
        print(f"{name}: skipped, {kind.missing()} cannot be imported")
        return Counter()
    counts: Counter = Counter()
    seeds = range(args.seed, args.seed + args.count)
    cases = [kind.case_of(args.case)] if args.case is not None else (kind.draw(s, args.precision) for s in seeds)
    for number, case in enumerate(cases):
        check = Checker(folder / f"case{number}")  # keeps no reference: every case has its own
        result = kind.run(case, check)
        counts[result.judgement] += 1
        counts["tensors"] += result.tensors
        text = kind.text(case)
        shown = "" if name == "graphs" else f" {text}"
        print(f"{name} {args.seed + number}{shown}: {result.judgement} {result.detail or result.tensors}", flush=True)
        if result.judgement in (ALARM, ERROR):
            print(f"  --kind {name} --case '{text}'", flush=True)
            case, result = shrunk(kind, case, result, check, args.tries)
            print(f"  shrunk: {result.judgement} {result.detail}\n  --kind {name} --case '{kind.text(case)}'")
            print(kind.print(case), flush=True)
        if not args.keep:
            shutil.rmtree(folder / f"case{number}", ignore_errors=True)
    return counts


def main() -> int:
    args = arguments()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="ttrace-programs-") as temporary:
        folder = args.keep or Path(temporary)
        for name in args.kind or ["graphs", *PROGRAMS]:
            counts = run_kind(name, args, folder / name)
            failed += counts[ALARM] + counts[ERROR]
            print(f"{name}: " + ", ".join(f"{counts[key]} {key}" for key in (CLEAN, ALARM, ERROR, REFUSED, "tensors")))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
