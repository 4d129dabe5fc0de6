"""Hunts for defects of frameworks: checks clean runs of random programs for hours, at idle priority.

    ./dev hunt [--hours H] [--seed S] [--kind KIND]... [--log FILE]
    ./dev hunt --summary [--log FILE]

The programs are those of ./dev fuzz-programs, the kinds in turn: case i of a kind follows from SEED + i. Every program is
a line of JSON in the log, an alarm with its report and with the smaller program that still raises it. A pass that fails
is an alarm, too. A hunt with the same log continues after the last program. An alarm is a defect of the framework, of its
example, or of TTrace: somebody has to judge it, and writes what is real into docs/found.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from kinds import ALARM, CLEAN, ERROR, NAMES, REFUSED, Checker, Kind, Result, kinds, shrunk  # noqa: E402
from options import ROOT  # noqa: E402

PACKAGES = ("torch", "megatron-core", "torchtitan", "transformers")
CHECK_SECONDS = 1800  # of a busy machine, on which this comes last
OF_REPORT = ("verdict", "counts", "first_divergence", "diagnoses", "remarks", "warnings", "notes")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--hours", type=float, default=1.0, help="no program starts later than that (default: 1)")
    add("--seed", type=int, default=1, help="seed of the first case (default: 1)")
    add("--kind", action="append", choices=NAMES, help="only this one; may be repeated")
    add("--log", type=Path, default=ROOT / "build" / "hunt.jsonl", help="default: build/hunt.jsonl")
    add("--tries", type=int, default=20, help="number of checks that shrinking a failure may take (default: 20)")
    add("--summary", action="store_true", help="only say what the log holds")
    return parser.parse_args()


def entries(log: Path) -> list[dict]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def report_of(result: Result) -> dict | None:
    return None if result.report is None else {key: result.report[key] for key in OF_REPORT if key in result.report}


def entry_of(name: str, kind: Kind, seed: int, folder: Path, tries: int) -> dict:
    """Checks one program."""
    start = time.monotonic()
    case = kind.draw(seed, None)
    check = Checker(folder, CHECK_SECONDS, keeps=False)
    result = kind.run(case, check)
    entry = {
        "kind": name, "seed": seed, "case": kind.text(case), "judgement": result.judgement, "detail": result.detail,
        "tensors": result.tensors,
    }  # fmt: skip
    if result.judgement in (ALARM, ERROR):
        entry |= {"report": report_of(result), "shown": kind.shown(case), "versions": versions()}
        case, result = shrunk(kind, case, result, check, tries)
        entry["smaller"] = {"case": kind.text(case), "detail": result.detail, "report": report_of(result),
                            "shown": kind.shown(case)}  # fmt: skip
    return {**entry, "seconds": round(time.monotonic() - start, 1), "at": time.strftime("%Y-%m-%d %H:%M:%S")}


def cases(names: list[str], every: dict[str, Kind], seed: int, done: set) -> Iterator[tuple[str, int]]:
    """The kinds in turn, without those of the log."""
    there = []
    for name in names:
        missing = every[name].missing()
        if missing:
            print(f"{name}: left out, there is no {missing}", flush=True)
        else:
            there.append(name)
    for number in itertools.count(seed) if there else ():
        yield from ((name, number) for name in there if (name, number) not in done)


def hunt(args: argparse.Namespace) -> None:
    os.nice(19)
    args.log.parent.mkdir(parents=True, exist_ok=True)
    done = {(entry["kind"], entry["seed"]) for entry in entries(args.log)}
    end = time.monotonic() + args.hours * 3600
    with tempfile.TemporaryDirectory(prefix="ttrace-hunt-") as temporary, args.log.open("a") as log:
        folder = Path(temporary)
        every = kinds(folder / "scripts")
        for name, seed in cases(args.kind or list(NAMES), every, args.seed, done):
            if time.monotonic() > end:
                break
            own = folder / f"{name}-{seed}"
            entry = entry_of(name, every[name], seed, own, args.tries)
            log.write(json.dumps(entry) + "\n")
            log.flush()
            shutil.rmtree(own, ignore_errors=True)
            shown = entry["detail"] or f"{entry['tensors']} tensors"
            print(f"{name} {seed}: {entry['judgement']} {shown} ({entry['seconds']:.0f} s)", flush=True)


def summary(found: list[dict]) -> str:
    seconds = sum(entry["seconds"] for entry in found)
    lines = [f"{len(found)} programs in {seconds / 3600:.2f} hours of machine time"]
    lines += ["", "| kind | programs | clean | alarms | errors | refused by the framework | tensors compared | hours |", "|---|---|---|---|---|---|---|---|"]
    for name in (*NAMES, "all"):
        of = [entry for entry in found if name in (entry["kind"], "all")]
        if of:
            counts = Counter(entry["judgement"] for entry in of)
            numbers = [len(of), *(counts[judgement] for judgement in (CLEAN, ALARM, ERROR, REFUSED))]
            tensors, hours = sum(entry["tensors"] for entry in of), sum(entry["seconds"] for entry in of) / 3600
            lines.append(f"| {name} | {' | '.join(map(str, numbers))} | {tensors} | {hours:.2f} |")
    for entry in found:
        if entry["judgement"] in (ALARM, ERROR):
            smaller = entry["smaller"]
            case = "" if entry["kind"] == "graphs" else f" ({smaller['case']})"
            lines.append(f"\n{entry['judgement']} {entry['kind']} {entry['seed']}{case}: {smaller['detail']}")
    return "\n".join(lines)


def main() -> int:
    args = arguments()
    if not args.summary:
        hunt(args)
    print(summary(entries(args.log)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
