"""How far a change reaches."""

from __future__ import annotations

import subprocess

import pytest
import reach


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["README.md", "docs/page.png", "tests/python/README.md"], "pages"),
        (["docs/gate.md", "analysis/checks/edge_check.cpp"], "judging"),
        (["python/ttrace/attach.py", "tests/python/test_attach.py"], "programs"),
        (["examples/dtensor/train.py", "analysis/checks/edge_check.cpp"], "programs"),
        (["tests/frameworks/test_launchers.py"], "programs"),
        (["python/ttrace/_adapter.py"], "everything"),  # .ci/run compiles adapters
        (["analysis/CMakeLists.txt"], "everything"),
        (["tests/python/CMakeLists.txt"], "everything"),
        (["tests/hooks/session_test.cpp"], "everything"),
        (["README.md", "trace/base/kind.h"], "everything"),
        (["a_new_folder/file"], "everything"),
        ([], "everything"),
    ],
)
def test_the_farthest_file_decides(paths, expected):
    assert reach.reach(paths) == expected


def test_a_folder_that_a_pattern_names_exists():
    for pattern in reach.PATTERNS:
        folder = pattern.split("*")[0].rpartition("/")[0]
        assert (reach.ROOT / folder).is_dir(), pattern


def _git(root, *words):
    subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *words], cwd=root, check=True, capture_output=True)


def test_what_is_committed_changed_and_new_counts_since_the_branch_left_origin(tree, tmp_path):
    origin = tree({"origin/a.md": "1", "origin/b.md": "1", "origin/c.md": "1"}) / "origin"
    _git(origin, "init", "-b", "main")
    _git(origin, "add", ".")
    _git(origin, "commit", "-m", "first")
    clone = tmp_path / "clone"
    _git(tmp_path, "clone", str(origin), str(clone))
    assert reach.base_of(clone) is None  # the clone is where its origin is
    (clone / "a.md").write_text("2")
    _git(clone, "commit", "-am", "second")
    (clone / "b.md").write_text("2")
    (clone / "new.md").write_text("1")
    base = reach.base_of(clone)
    assert base is not None
    assert reach.changed(clone, base) == ["a.md", "b.md", "new.md"]
    assert reach.changed(clone, "no-such-commit") is None


def test_a_folder_without_origin_has_no_base(tree):
    root = tree({"a.md": "1"})
    _git(root, "init")
    assert reach.base_of(root) is None
