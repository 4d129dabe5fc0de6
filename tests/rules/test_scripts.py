"""The scripts as ./dev rules runs them: exit code and what they print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / ".ci"


def run(script: str, root: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(SCRIPTS / f"{script}.py"), "--root", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("script", "path", "text", "offence"),
    [
        ("layers", "hooks/base/a.h", '#include "analysis/b.h"\n', "layers: hooks/base/a.h:1 includes "),
        ("layers", "hooks/new/a.h", "", "layers: hooks/new is no room"),
        ("lengths", "trace/a.cpp", "\n" * 501, "lengths: trace/a.cpp has 501 lines"),
        ("naming", "trace/A.cpp", "", "naming: trace/A.cpp: A must be snake_case"),
        ("links", "docs/a.md", "[x](gone.md)\n", "links: docs/a.md:1 links to gone.md"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_named_and_fails(tree, script, path, text, offence):
    result = run(script, tree({path: text, "analysis/b.h": "#pragma once\n"}))
    assert result.returncode == 1
    assert any(line.startswith(offence) for line in result.stdout.splitlines())
    assert result.stderr == ""


@pytest.mark.parametrize("script", ["naming", "links"])
def test_a_tree_in_order_passes(tree, script):
    result = run(script, tree({"trace/a.h": "#pragma once\n", "docs/a.md": "[x](../trace/a.h)\n"}))
    assert (result.returncode, result.stdout) == (0, f"{script}: passed\n")


def test_the_map_judges_nothing(tree):
    result = run("layers", tree({"hooks/a.h": '#include "a.h"\n'}), "--map")
    assert result.returncode == 0
    assert result.stdout.startswith("room")
