"""docs/tutorial.md as a reader follows it: commands run, changes are made, the page shows what is printed."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

PAGE = ROOT / "docs" / "tutorial.md"
FOLDER = "/tmp/first-bug"  # the reader's, which the test replaces
END = "the command of the test ended with"
ABORTED = "terminate called without an active exception"  # torch does that now and then; the page says so


class Shell:
    """One bash, so that what a command exports and where it goes hold for the next one."""

    def __init__(self, environment: dict[str, str]):
        self._bash = subprocess.Popen(
            ["bash", "--norc"], cwd=ROOT, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, command: str) -> tuple[int, str]:
        """Exit code, and what it printed."""
        self._bash.stdin.write(f"{command}\ncode=$?; printf '\\n{END} %d\\n' $code; (exit $code)\n")
        self._bash.stdin.flush()
        printed = []
        for line in self._bash.stdout:
            if line.startswith(END):
                return int(line.removeprefix(END)), "".join(printed).removesuffix("\n")
            printed.append(line)
        raise AssertionError(f"bash ended in `{command}`:\n{''.join(printed)}")

    def close(self) -> None:
        self._bash.stdin.close()
        self._bash.wait()
        self._bash.stdout.close()


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Language and text of every fenced block."""
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield found[1], found[2]


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Every command of a block, and what the page shows below it."""
    assert block.startswith("$ "), f"a block without a language begins with a command, not with\n{block}"
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def changed(text: str, diff: str) -> str:
    """The text with what a block of the page adds and removes. Lines between two `...` follow each other."""
    for hunk in re.split(r"^\.\.\.\n", diff, flags=re.MULTILINE):
        lines = hunk.splitlines()
        before = "".join(f"{line[1:]}\n" for line in lines if line[0] in " -")
        after = "".join(f"{line[1:]}\n" for line in lines if line[0] in " +")
        assert text.count(before) == 1, f"these lines are {text.count(before)} times in the script:\n{before}"
        text = text.replace(before, after)
    return text


NUMBER = re.compile(r"(?<![\w./:])[-+]?\d+(\.\d+)?(e[-+]?\d+)?(?![\w.]*[/:])")


def stable(line: str) -> str:
    """Numbers depend on the machine's kernels, and so does the width of a column. Names, lines of source,
    ranks and what stands alone in a line, such as an exit code, do not."""
    line = " ".join(line.split())
    if line.isdigit() or line.startswith(("ranks ", "code ", "reference ", "candidate ")):
        return line
    return NUMBER.sub("N", line)


def check_shown(shown: str, printed: str) -> None:
    """Fails unless a page's lines are what was printed. `...` stands for any text, or for any lines."""
    if not shown.strip():
        return
    lines = []
    for line in shown.splitlines():
        pieces = (re.escape(stable(piece)) for piece in line.split("..."))
        lines.append("(?:.*\n)*?" if line == "..." else r" ?.*? ?".join(pieces) + "\n")
    actual = "".join(f"{stable(line)}\n" for line in printed.splitlines())
    for count in range(1, len(lines) + 1):  # the first line that differs is what to show
        if not re.match("".join(lines[:count]), actual):
            pytest.fail(f"the page shows\n  {shown.splitlines()[count - 1]}\nbut this is printed:\n{printed}")
    assert re.fullmatch("".join(lines), actual), f"the page leaves out the end of what is printed:\n{printed}"


@pytest.fixture(scope="module")
def tutorial(programs, tmp_path_factory) -> Iterator[tuple[Path, dict[str, list[int]]]]:
    """The reader's folder after the last command, and the exit codes of every command in order."""
    folder = tmp_path_factory.mktemp("tutorial") / "first-bug"
    own = {k: v for k, v in os.environ.items() if not k.startswith(("TTRACE_", "LIBTTRACE_"))} | {
        "TTRACE_NO_APT": "1"
    }
    own.pop("PYTHONPATH", None)
    shell = Shell(own)
    codes: dict[str, list[int]] = {}
    for language, block in blocks(PAGE.read_text(encoding="utf-8").replace(FOLDER, str(folder))):
        if language == "diff":
            script = folder / "train.py"
            script.write_text(changed(script.read_text(), block))
            continue
        assert not language, f"the test cannot run a block of {language}"
        for command, shown in commands(block):
            code, printed = shell.run(command)
            if command.startswith("torchrun") and ABORTED in printed:
                code, printed = shell.run(command)
            check_shown(shown, printed)
            codes.setdefault(command, []).append(code)
            if "./dev env" in command:
                assert "ttrace" in shell.run("command -v ttrace")[1]
                shell.run(f"export PATH={programs}:$PATH")
    shell.close()
    yield folder, codes


def test_every_command_prints_what_the_page_shows(tutorial):
    _, codes = tutorial
    checks = {command: code for command, code in codes.items() if command.startswith("ttrace check")}
    by_output = {command.split(" -o ")[1]: code for command, code in checks.items()}
    assert by_output == {"clean": [0], "bug": [1], "fixed": [0], "quiet": [1]}
    assert codes["python train.py"] == [0]
    assert set(codes["torchrun --nproc-per-node 2 train.py"]) == {0}


def test_the_script_differs_from_the_traced_one_by_five_lines(tutorial):
    text = PAGE.read_text(encoding="utf-8")
    five = next(block for language, block in blocks(text) if language == "diff")
    added, removed = ({line[1:].strip() for line in five.splitlines() if line[0] == sign} for sign in "+-")
    assert len(added - removed) == 5  # a line that is only indented does not count


def test_the_page_for_a_browser_is_there(tutorial):
    folder, _ = tutorial
    page = (folder / "bug.html").read_text(encoding="utf-8")
    assert "s0/m0/output/blocks.0.feed_forward/0" in page


def test_lines_of_source_that_the_page_quotes_are_those_of_the_script():
    """Line 61 is named in prose, too."""
    script = ROOT / "examples" / "tutorial" / "train.py"
    text = script.read_text()
    for language, block in blocks(PAGE.read_text(encoding="utf-8")):
        if language == "diff":
            text = changed(text, block)
    assert text.splitlines()[60].strip() == "addend = F.linear(wide, self.down)"


def test_what_differs_is_noticed():
    check_shown("a 1.5 b\n...\nend\n", "a 2.5e-3 b\nmore\nmore\nend\n")
    for shown, printed in (
        ("a\n", "b\n"),
        ("a\n", "a\nb\n"),
        ("source: train.py:59\n", "source: train.py:60\n"),
        ("0\n", "1\n"),
    ):
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            check_shown(shown, printed)
    with pytest.raises(AssertionError, match="0 times"):
        changed("a\nb\n", "-c\n")
