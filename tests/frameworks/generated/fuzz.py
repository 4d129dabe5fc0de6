"""Checks clean runs of random programs: options of training scripts, and operator graphs cut by DTensor.

    ./dev fuzz-programs N SEED [--kind KIND]... [--precision P] [--keep DIR]
    ./dev fuzz-programs --kind graphs --case TEXT

Case i of a run follows from SEED + i alone. No clean program may raise an alarm. One that does is shrunk while it still
fails, and printed: a graph as a script that runs by itself, options as the command that checks them. What a framework
itself refuses to run is counted and left out.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from kinds import ALARM, CLEAN, ERROR, NAMES, REFUSED, Checker, Kind, kinds, shrunk  # noqa: E402


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("count", type=int, nargs="?", default=0, metavar="N", help="number of cases")
    add("seed", type=int, nargs="?", default=1, metavar="SEED", help="seed of the first case")
    add("--kind", action="append", choices=NAMES, help="only this one; may be repeated")
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


def run_kind(name: str, kind: Kind, args: argparse.Namespace, folder: Path) -> Counter:
    if kind.missing():
        print(f"{name}: skipped, there is no {kind.missing()}")
        return Counter()
    counts: Counter = Counter()
    seeds = range(args.seed, args.seed + args.count)
    cases = [kind.case_of(args.case)] if args.case is not None else (kind.draw(s, args.precision) for s in seeds)
    for number, case in enumerate(cases):
        own = folder / name / f"case{number}"
        check = Checker(own, keeps=args.keep is not None)  # every case has its own references
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
            print(kind.shown(case), flush=True)
        if not args.keep:
            shutil.rmtree(own, ignore_errors=True)
    return counts


def main() -> int:
    args = arguments()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="ttrace-programs-") as temporary:
        folder = args.keep or Path(temporary)
        every = kinds(folder / "scripts")
        for name in args.kind or NAMES:
            counts = run_kind(name, every[name], args, folder)
            failed += counts[ALARM] + counts[ERROR]
            print(f"{name}: " + ", ".join(f"{counts[key]} {key}" for key in (CLEAN, ALARM, ERROR, REFUSED, "tensors")))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
