"""Runs every report and idiom, right and wrong, and prints a table of what TTrace said.

    python measure.py FOLDER [NAME]...   keeps the checks in FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from reports import Checker, Outcome, idioms, reports


def said(outcome: Outcome) -> str:
    if outcome.report is None:
        return f"exit {outcome.code}: {(outcome.errors.strip().splitlines() or [''])[0]}"
    first = outcome.report["first_divergence"]
    cause = f": {first['probable_cause'] or first['cause']}" if first else ""
    return f"{outcome.report['verdict']} {outcome.first}{cause}".replace("|", "\\|")


def main() -> None:
    print("| script | report | right variant | wrong variant | located |\n|---|---|---|---|---|")
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    clean, found, located, total = 0, 0, 0, 0
    for report in [*reports(), *idioms()]:
        if names and report.name not in names:
            continue
        (folder / report.name).mkdir(parents=True)
        check = Checker(folder / report.name)
        right, wrong = report.run(check, bug=False), report.run(check, bug=True)
        total, clean, found = total + 1, clean + (right.code == 0), found + (wrong.code == 1)
        located += report.locates(wrong)
        where = "yes" if report.locates(wrong) else "no"
        print(f"| {report.name} | {report.report} | {said(right)} | {said(wrong)} | {where} |", flush=True)
    print(f"\n{total} reports: {clean} right variants clean, {found} bugs found, {located} of these where they were declared")


if __name__ == "__main__":
    main()
