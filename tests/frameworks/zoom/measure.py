"""Prints what `ttrace check --zoom` names for every bug inside a large module, and how many are right.

    python tests/frameworks/zoom/measure.py [REGEX]
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from judged import BUGS, Checker, run


def main() -> None:
    wanted = re.compile(sys.argv[1] if len(sys.argv) > 1 else "")
    check = Checker(Path(tempfile.mkdtemp(prefix="ttrace-zoom-")))
    bugs = [bug for bug in BUGS if wanted.search(bug.name)]
    operators = lines = 0
    for bug in bugs:
        _, named = run(check, bug)
        operator, line = named.is_operator_of(bug), named.is_line_of(bug)
        operators, lines = operators + operator, lines + line
        print(
            f"{bug.name}: {named.operator} at {named.source} ({named.fault}; {named.first}): "
            f"operator {'right' if operator else 'WRONG, ' + bug.operator}, "
            f"line {'right' if line else 'WRONG, ' + bug.line}",
            flush=True,
        )
    print(f"{len(bugs)} bugs: operator right in {operators}, source line right in {lines}")


if __name__ == "__main__":
    main()
