"""Links that lead nowhere."""

from __future__ import annotations

import links
import pytest

PAGE = "# Trace format\n\n## What is `kept`?\n\n## Twice\n\n## Twice\n\n```\n# no heading\n```\n"


@pytest.fixture
def root(tree):
    return tree({"docs/format.md": PAGE, "trace/a.cpp": "1\n2\n3\n", "README.md": "# TTrace\n"})


@pytest.mark.parametrize(
    "target",
    [
        "format.md", "./format.md#trace-format", "#twice-1", "format.md#what-is-kept", "../README.md",
        "../trace", "../trace/a.cpp#L3", "../trace/a.cpp#L1-L3", "https://example.org/x#y",
        "mailto:x@example.org",
    ],
)  # fmt: skip
def test_what_exists_passes(root, target):
    assert links.problem(root, "docs/format.md", target) is None


@pytest.mark.parametrize(
    ("target", "wrong"),
    [
        ("formats.md", "docs/formats.md does not exist"),
        ("format.md#what-is-kept-2", "docs/format.md has no heading #what-is-kept-2"),
        ("#no-heading", "docs/format.md has no heading #no-heading"),
        ("../trace/a.cpp#L4", "trace/a.cpp has no line #L4"),
        ("../../outside.md", "leaves the repository"),
        ("/etc/passwd", "leaves the repository"),
    ],
)
def test_what_does_not_exist_is_named(root, target, wrong):
    assert links.problem(root, "docs/format.md", target) == wrong


def test_links_are_found_with_their_lines_and_not_in_code():
    text = '[a](x.md)\n`[b](y.md)`\n\n```\n[c](z.md)\n```\n![d](p.svg "title") [[e]](q.md)\n\n[f]: r.md\n'
    assert list(links.links(text)) == [(1, "x.md"), (7, "p.svg"), (7, "q.md"), (9, "r.md")]
