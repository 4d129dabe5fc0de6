#!/usr/bin/env python3
"""Fails on a relative link in a Markdown page whose file, heading or line does not exist."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import sources

_FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
_INLINE = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]*)>?(?:\s+\"[^\"]*\")?\s*\)")
_REFERENCE = re.compile(r"^[ ]{0,3}\[[^\]]+\]:[ \t]*<?([^\s>]+)>?", re.MULTILINE)
_HEADING = re.compile(r"^[ ]{0,3}#{1,6}[ \t]+(.*?)[ \t#]*$", re.MULTILINE)
_NAMED = re.compile(r"<a[^>]+(?:id|name)=\"([^\"]+)\"")
_REMOTE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def links(text: str) -> Iterator[tuple[int, str]]:
    """Line and target of every link outside of code."""

    def blank(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", found[0])

    text = _CODE.sub(blank, _FENCE.sub(blank, text))
    for pattern in (_INLINE, _REFERENCE):
        for found in pattern.finditer(text):
            yield text.count("\n", 0, found.start(1)) + 1, found[1]


def anchors(text: str) -> set[str]:
    """The anchors that GitHub makes of a page's headings, and those that it names itself."""
    text = _FENCE.sub("", text)
    found: set[str] = set(_NAMED.findall(text))
    counts: dict[str, int] = {}
    for heading in _HEADING.findall(text):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        seen = counts.get(slug, 0)
        counts[slug] = seen + 1
        found.add(f"{slug}-{seen}" if seen else slug)
    return found


def problem(root: Path, page: str, target: str) -> str | None:
    """What is wrong with a link of a page, or None."""
    if _REMOTE.match(target) or target.startswith("//"):
        return None
    name, _, anchor = unquote(target).partition("#")
    path = os.path.normpath(os.path.join(os.path.dirname(page), name)) if name else page
    if name.startswith("/") or path.startswith(".."):
        return "leaves the repository"
    if not (root / path).exists():
        return f"{path} does not exist"
    if not anchor or (root / path).is_dir():
        return None
    text = sources.read(root, path)
    if path.endswith(".md"):
        return None if anchor in anchors(text) else f"{path} has no heading #{anchor}"
    line = re.fullmatch(r"L(\d+)(?:-L(\d+))?", anchor)
    if line and int(line[2] or line[1]) <= text.count("\n"):
        return None
    return f"{path} has no line #{anchor}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=sources.ROOT)
    root = parser.parse_args().root
    found = []
    for page in sources.files(root, (".",), (".md",)):
        for line, target in links(sources.read(root, page)):
            wrong = problem(root, page, target)
            if wrong:
                found.append(f"{page}:{line} links to {target}: {wrong}")
    return sources.finish("links", found)


if __name__ == "__main__":
    sys.exit(main())
