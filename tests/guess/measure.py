"""Measures what `ttrace rename --guess` makes of pairs of programs, next to maps that were written by hand.

    ./dev guess [--pair NAME]... [--page FILE] [--keep FOLDER]

Every pair is guessed twice: with equal weights, as two programs have them that load one checkpoint, and with weights
that each program draws for itself.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from pairs import PAIRS, Pair  # noqa: E402

# Without noise passes: numpy's rule, and not what the optimizer makes of gradients that are zero but for round-off.
DIFF = ["--rtol", "1e-3", "--atol", "1e-6", "--exclude", "/(param_next|exp_avg|exp_avg_sq|master|state)/"]

TTRACE, SCORE = os.environ["TTRACE_PROGRAM"], os.environ["TTRACE_SCORE_MAPS"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--pair", action="append", choices=[pair.name for pair in PAIRS], help="only this one; may be repeated")
    add("--page", type=Path, help="write the table, in Markdown, to this file")
    add("--keep", type=Path, help="keep traces and maps in this folder")
    return parser.parse_args()


@dataclass
class Figures:
    """Of one guess, in tensors of both programs within one micro-batch."""

    weights: str
    exit_code: int
    right: int
    asked: list[str]
    wrong: list[str]
    diff: str

    @property
    def tensors(self) -> int:
        return self.right + len(self.asked) + len(self.wrong)


def run(command: list, codes: tuple[int, ...] = (0,), **environment: str) -> subprocess.CompletedProcess:
    words = [str(word) for word in command]
    done = subprocess.run(words, env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode not in codes:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def trace(command: list[str], kind: str, folder: Path, **environment: str) -> None:
    run(command, TTRACE_PASS=kind, TTRACE_DIR=str(folder), TTRACE_STEPS="0:1", **environment)


def write_traces(pair: Pair, folder: Path) -> None:
    """reference, candidate (with the reference's weights) and other (with weights of its own)."""
    reference, candidate = pair.commands(sys.executable, other_weights=False)
    other = pair.commands(sys.executable, other_weights=True)[1]
    trace(reference, "reference", folder / "reference", TTRACE_START="own")
    run([TTRACE, "rename", folder / "reference", "--map", pair.truth, "-o", folder / "renamed"])
    trace(candidate, "candidate", folder / "candidate", TTRACE_REFERENCE=str(folder / "renamed"))
    trace(other, "candidate", folder / "other", TTRACE_START="own")


def figures(pair: Pair, folder: Path, weights: str, candidate: Path) -> Figures:
    traces = [folder / "reference", candidate]
    proposal = folder / f"{candidate.name}.yaml"
    guess = run([TTRACE, "rename", "--guess", *traces, "-o", proposal], (0, 1))
    score = json.loads(run([SCORE, *traces, pair.truth, proposal]).stdout)
    if score["unsound"]:
        raise RuntimeError(f"{pair.truth} names tensors that do not exist for {score['unsound']}")
    verdict = diff_with(proposal, traces) if weights == "equal" else ""
    return Figures(weights, guess.returncode, score["right"], score["asked"], score["wrong"], verdict)


def diff_with(proposal: Path, traces: list[Path]) -> str:
    """Every question is answered with `~`, which says that the other program does not have the tensor."""
    text, questions = re.subn(r'"open\.[^"]*"', "~", proposal.read_text())
    answered = proposal.with_suffix(".answered.yaml")
    answered.write_text(text)
    done = run([TTRACE, "diff", *traces, "--rename", answered, *DIFF], (0, 1, 2))
    last = (done.stdout + done.stderr).strip().splitlines()[-1].split(";")[0]
    after = f" after {questions} answers of `~`" if questions else ""
    return f"{'clean' if done.returncode == 0 else 'NOT CLEAN'}{after}: {last}"


def measured(pair: Pair, folder: Path) -> list[Figures]:
    write_traces(pair, folder)
    both = [figures(pair, folder, "equal", folder / "candidate"), figures(pair, folder, "own", folder / "other")]
    for one in both:
        say(f"{pair.name}, {one.weights} weights: {one.tensors} tensors, {one.right} right, {len(one.asked)} asked, "
            f"{len(one.wrong)} wrong; {one.diff}")  # fmt: skip
        for name in one.wrong[:20]:
            say(f"    wrong: {name}")
    return both


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def page(rows: list[tuple[Pair, Figures]]) -> str:
    lines = [
        "# Proposed rename maps: figures",
        "",
        "Made by `./dev guess`; [docs/rename.md](../rename.md#a-proposed-map) explains `ttrace rename --guess`. The maps that say",
        "what is right ([tests/guess/truth](../../tests/guess/truth)) were written by hand before the first guess. Tensors",
        "are those of both programs within one micro-batch. Asked: the proposal leaves them open and says what they may be.",
        "",
        "| pair | weights | tensors | right | asked | wrong | `ttrace diff` with the proposed map |",
        "|---|---|---|---|---|---|---|",
    ]
    for pair, one in rows:
        share = f"{one.right} ({100 * one.right / one.tensors:.1f} %)"
        lines.append(
            f"| {pair.name} | {one.weights} | {one.tensors} | {share} | {len(one.asked)} | {len(one.wrong)} | {one.diff} |"
        )
    lines += ["", *(f"- {pair.name}: {pair.what}." for pair in dict.fromkeys(pair for pair, _ in rows))]
    return "\n".join(lines) + "\n"


def missing(pair: Pair) -> bool:
    try:
        return bool(pair.needs) and importlib.util.find_spec(pair.needs) is None
    except ModuleNotFoundError:
        return True


def main() -> int:
    args = arguments()
    rows: list[tuple[Pair, Figures]] = []
    with tempfile.TemporaryDirectory(prefix="ttrace-guess-") as temporary:
        for pair in PAIRS:
            if args.pair and pair.name not in args.pair:
                continue
            if missing(pair):
                say(f"{pair.name}: skipped, {pair.needs} cannot be imported")
                continue
            folder = (args.keep or Path(temporary)) / pair.name
            folder.mkdir(parents=True)
            rows += [(pair, one) for one in measured(pair, folder)]
    text = page(rows)
    if args.page:
        args.page.write_text(text)
    print(text)
    return int(any(one.wrong or "NOT" in one.diff for _, one in rows))


if __name__ == "__main__":
    sys.exit(main())
