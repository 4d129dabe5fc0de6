"""`ttrace skill`: the file that it prints is man/skill.md, and its commands do what the file says of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import HANG, PROGRAM, ROOT

TEXT = (ROOT / "man" / "skill.md").read_text(encoding="utf-8")
BLOCKS = [block.split("\n") for block in re.findall(r"^ *```\n(.*?)\n *```$", TEXT, re.MULTILINE | re.DOTALL)]
COMMANDS = [line.strip() for block in BLOCKS for line in block]
SPANS = re.findall(r"`(ttrace [^`]*)`", TEXT)
# A user's script: examples/dtensor with a planted bug, until somebody mends it.
SCRIPT = """
import pathlib, runpy, sys
example = pathlib.Path({example!r})
is_wrong = "--tp" in sys.argv and not pathlib.Path("mended").exists()
sys.argv[1:1] = ["row-output-not-summed"] if is_wrong else []
runpy.run_path(str(example / ("planted_bug.py" if is_wrong else "train.py")), run_name="__main__")
"""


def ttrace(*words: str) -> str:
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=True, timeout=HANG).stdout


def test_the_program_prints_the_file():
    assert ttrace("skill") == TEXT


def test_the_file_is_a_skill_of_at_most_80_lines():
    lines = TEXT.splitlines()
    assert len(lines) <= 80
    assert lines[0] == "---" and lines[3] == "---"
    assert lines[1] == "name: ttrace"
    assert re.fullmatch(r"description: .{50,1000}", lines[2]), "agents read so much of it to decide"


@pytest.mark.parametrize("command", sorted({*SPANS, *(line for line in COMMANDS if line.startswith("ttrace"))}))
def test_every_option_exists(command):
    name = command.split()[1]
    known = ttrace("help", name) if name != "help" else ttrace("help")
    own = re.sub('"[^"]*"', "", command.split(" | ")[0])  # without the programs' options and those of jq
    for option in re.findall(r"(?<!\S)--?[a-z][-a-z]*", own):
        assert re.search(rf"(?<!\S){re.escape(option)}\b", known), f"`ttrace {name}` has no {option}"


def test_every_option_in_prose_exists():
    options = re.findall(r"`(--[a-z-]+)", TEXT)
    assert len(options) > 3
    for option in options:
        assert f"{option} " in ttrace("help", "check"), option


@pytest.fixture(scope="module")
def codes(programs, tmp_path_factory) -> dict[str, int]:
    """The exit code of every command in a block and of the table's commands that are whole, in the order of the file. The
    bug is mended before the second check."""
    folder = tmp_path_factory.mktemp("skill")
    (folder / "train.py").write_text(SCRIPT.format(example=str(ROOT / "examples" / "dtensor")))
    path = f"{programs}:{Path(PROGRAM).parent}:{os.environ['PATH']}"
    found: dict[str, int] = {}
    whole = [span for span in SPANS if span.startswith(("ttrace diff", "ttrace ls", "ttrace show", "ttrace help"))]
    for command in [*COMMANDS, *whole]:
        if command.startswith("ttrace check") and "mended" in command:
            (folder / "mended").touch()
        result = subprocess.run(
            command, shell=True, cwd=folder, capture_output=True, text=True, timeout=HANG, check=False,
            env={**os.environ, "PATH": path},
        )  # fmt: skip
        found[command] = result.returncode
        if "jq" not in command:
            assert result.returncode in (0, 1), f"{command}:\n{result.stdout}{result.stderr}"
        elif shutil.which("jq"):
            assert result.returncode == 0 and result.stdout.strip(), f"{command}:\n{result.stderr}"
    return found


def test_the_loop_finds_the_bug_and_ends_when_it_is_mended(codes):
    checks = [code for command, code in codes.items() if command.startswith("ttrace check")]
    assert checks == [1, 0]
    assert [code for command, code in codes.items() if command.startswith(("ttrace explain", "ttrace zoom"))][:3] == [1, 1, 1]


def test_what_looks_at_an_earlier_check_works(codes):
    of_table = {command.split()[1]: code for command, code in codes.items() if command in SPANS}
    assert of_table == {"diff": 1, "ls": 0, "show": 0, "help": 0}
