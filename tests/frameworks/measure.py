"""Measures programs of other frameworks: alarms of clean runs, and how planted bugs are found.

    ./dev frameworks [--family F]... [--filter REGEX] [--clean | --bugs] [--auto] [--jobs N] [--json FILE] [--page FILE]
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from catalogue import Bug, Family, Layout, Program, families  # noqa: E402
from runs import Checker, run_bug, run_clean  # noqa: E402


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--family", action="append", help="only this one; may be repeated")
    add("--filter", default="", help="regular expression on 'FAMILY PROGRAM LAYOUT PRECISION' or 'FAMILY BUG'")
    add("--clean", action="store_true", help="only clean runs")
    add("--bugs", action="store_true", help="only bugs")
    add("--auto", action="store_true", help="the scripts without their lines for TTrace, by `ttrace check --auto`")
    add("--jobs", type=int, default=1, help="number of families that run at the same time; default: 1")
    add("--json", type=Path, help="write every figure to this file")
    add("--page", type=Path, help="write the tables, in Markdown, to this file")
    add("--keep", type=Path, help="keep traces, logs and reports in this folder")
    return parser.parse_args()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def tidy(check: Checker, keep: Path | None) -> None:
    """Traces of a run take megabytes; of those only its reference serves others."""
    for folder in () if keep else check.last.iterdir():
        if folder.is_dir() and folder.name not in ("reference", "reference-names"):
            shutil.rmtree(folder)


def clean_row(
    check: Checker, family: Family, program: Program, layout: Layout, precision: str, auto: bool
) -> dict:
    run = run_clean(check, program, layout, precision, auto=auto)
    counts = (run.outcome.report or {}).get("counts", {})
    row = {
        "family": family.name, "program": program.name, "layout": layout.name, "ranks": layout.ranks,
        "precision": precision, "tensors": counts.get("tensors", 0), "operators": counts.get("operators", 0),
        "behind_flip": counts.get("behind_flip", 0), "allowed": counts.get("allowed_missing", 0),
        "exit_code": run.outcome.code, "alarms": run.alarms, "seconds": round(run.seconds, 1),
        "lines_added": 0 if auto else program.lines_added(),
    }  # fmt: skip
    verdict = f"{row['tensors']} tensors, {len(run.alarms)} alarms, exit code {row['exit_code']}"
    say(f"{family.name} {program.name} {layout.name} {precision}: {verdict} ({run.seconds:.0f} s)")
    for alarm in run.alarms[:5]:
        say(f"    {alarm}")
    return row


def bug_row(check: Checker, family: Family, bug: Bug, auto: bool) -> dict:
    judged = run_bug(check, family, bug, auto)
    row = {"family": family.name, "bug": bug.name, "program": bug.program, "layout": bug.layout,
           "precision": bug.precision, "expected": bug.expected, "declared": list(bug.signature),
           "redeclared": bug.redeclared, **judged.__dict__}  # fmt: skip
    where = judged.first if judged.located else f"at {judged.first}, declared {bug.expected}"
    say(f"{family.name} {bug.name}: {where if judged.found else 'NOT FOUND'}; {judged.signature}")
    return row


def clean_table(rows: list[dict]) -> list[str]:
    lines = [
        "| family | program | layout | ranks | precision | tensors compared | operators checked | alarms | seconds | lines added |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        keys = ("family", "program", "layout", "ranks", "precision", "tensors", "operators")
        cells = [str(row[key]) for key in keys]
        failed = "" if row["exit_code"] in (0, 1) else f" (exit code {row['exit_code']})"
        cells += [f"{len(row['alarms'])}{failed}", str(row["seconds"]), str(row["lines_added"])]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def share(rows: list[dict], key: str) -> str:
    asked = [row for row in rows if row[key] is not None]
    return f"{sum(row[key] for row in asked)} of {len(asked)}"


def bug_tables(rows: list[dict]) -> list[str]:
    lines = [
        "| family | bugs run | found | at the declared tensor, of those | cause as declared | any accepted cause | axis, factor and ranks |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in [*sorted({row["family"] for row in rows}), "all"]:
        run = [row for row in rows if name in (row["family"], "all")]
        found = [row for row in run if row["found"]]
        keys = ("located", "as_declared", "accepted", "named")
        cells = [name, str(len(run)), share(run, "found"), *(share(found, key) for key in keys)]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| bug | layout | precision | first divergence | located | declared cause | named cause | error / bound |",
              "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for row in rows:
        ratio = "" if row["error_over_bound"] is None else f"{row['error_over_bound']:.3g}"
        located = "redeclared" if row["redeclared"] else "yes" if row["located"] else "no"
        first = f"`{row['first']}`" if row["found"] else "not found"
        lines.append(
            f"| {row['family']} {row['bug']} | {row['program']} {row['layout']} | {row['precision']} | {first} "
            f"| {located} | {row['declared'][0]} | {row['signature']} | {ratio} |"
        )
    return lines


def page(clean: list[dict], bugs: list[dict], jobs: int) -> str:
    lines = [
        "# Programs of other frameworks: figures",
        "",
        "Made by `./dev frameworks`; [docs/frameworks.md](../frameworks.md) says what the programs are. A clean run must raise no",
        "alarm. Where the first divergence of a bug must be, and what its cause is, was declared before its first run; a bug",
        f"whose declaration was changed later counts as not located. Seconds are those of a whole check, with {jobs} at the same time.",
    ]
    if clean:
        lines += ["", "## Clean runs", "", *clean_table(clean)]
    if bugs:
        lines += ["", "## Planted bugs", "", *bug_tables(bugs)]
    return "\n".join(lines) + "\n"


def measure(name: str, args: argparse.Namespace) -> tuple[list[dict], list[dict]]:
    """Rows of the clean runs and of the bugs of one family."""
    family = next(f for f in families() if f.name == name)
    pattern = re.compile(args.filter)
    clean, bugs = [], []
    with tempfile.TemporaryDirectory(prefix=f"ttrace-frameworks-{name}-") as folder:
        check = Checker(args.keep / name if args.keep else Path(folder), seconds=3600)
        for program in family.programs:
            if program.missing():
                say(f"{name} {program.name}: skipped, {program.missing()} cannot be imported")
                continue
            for layout in program.layouts if not args.bugs else ():
                for precision in layout.precisions:
                    if pattern.search(f"{name} {program.name} {layout.name} {precision}"):
                        clean.append(clean_row(check, family, program, layout, precision, args.auto))
                        tidy(check, args.keep)
        for bug in family.bugs if not args.clean else ():
            if pattern.search(f"{name} {bug.name}") and not family.program(bug.program).missing():
                bugs.append(bug_row(check, family, bug, args.auto))
                tidy(check, args.keep)
    return clean, bugs


def main() -> int:
    args = arguments()
    chosen = [f.name for f in families() if not args.family or f.name in args.family]
    with ProcessPoolExecutor(max_workers=args.jobs) as pool:
        results = list(pool.map(measure, chosen, [args] * len(chosen)))
    clean, bugs = ([row for rows in results for row in rows[part]] for part in (0, 1))
    text = page(clean, bugs, args.jobs)
    if args.json:
        args.json.write_text(json.dumps({"clean": clean, "bugs": bugs}, indent=1) + "\n")
    if args.page:
        args.page.write_text(text)
    print(text)
    # A redeclared bug and a bug elsewhere are figures; an alarm or a bug that is not found is a failure.
    return int(any(row["exit_code"] for row in clean) or not all(row["found"] for row in bugs))


if __name__ == "__main__":
    sys.exit(main())
