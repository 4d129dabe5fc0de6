"""Measures which operator and which line of source `ttrace check --zoom` names for bugs inside large modules.

    ./dev zoom [--filter REGEX] [--page FILE]
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

from judged import BUGS, Checker, Named, ZoomBug, run


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--filter", type=re.compile, default="", help="regular expression on the names of bugs")
    parser.add_argument("--page", type=Path, help="write the table, in Markdown, to this file")
    return parser.parse_args()


def judged(answer: str, is_right: bool, right: str) -> str:
    if is_right:
        return f"`{answer}`"
    return f"**{f'`{answer}`' if answer else 'none'}**, should be `{right}`"


def row(bug: ZoomBug, named: Named) -> str:
    source = Path(named.source).name
    cells = [
        f"{bug.name}{', redeclared' if bug.redeclared else ''}",
        f"{bug.block}, {bug.layout}",
        bug.precision,
        f"`{named.first}`" if named.first else "not found",
        judged(named.operator, named.is_operator_of(bug), bug.operator),
        named.fault.replace("_", " "),
        judged(source, named.is_line_of(bug), bug.line),
    ]
    return f"| {' | '.join(cells)} |"


def page(rows: list[str], summary: str) -> str:
    return "\n".join(
        [
            "# To the operator: figures",
            "",
            "Made by `./dev zoom`; [docs/zoom.md](../zoom.md) explains `ttrace check --zoom`. The operator and the line of every bug were",
            "declared before its first run ([bugs.py](../../tests/frameworks/zoom/bugs.py)). A bug that the check does not find cannot be",
            "zoomed into, and counts as wrong.",
            "",
            summary,
            "",
            "| bug | module, layout | precision | first divergence of the check | operator | fault | line |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def main() -> None:
    args = arguments()
    bugs = [bug for bug in BUGS if re.search(args.filter, bug.name)]
    rows, operators, lines = [], 0, 0
    with tempfile.TemporaryDirectory(prefix="ttrace-zoom-") as folder:
        check = Checker(Path(folder))
        for bug in bugs:
            _, named = run(check, bug)
            operators += named.is_operator_of(bug)
            lines += named.is_line_of(bug)
            rows.append(row(bug, named))
            print(rows[-1], file=sys.stderr, flush=True)
    summary = f"{len(bugs)} bugs: operator right in {operators}, line of source right in {lines}."
    if args.page:
        args.page.write_text(page(rows, summary))
    print(summary)


if __name__ == "__main__":
    main()
