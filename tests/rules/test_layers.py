"""Circles and wrong directions of includes and imports."""

from __future__ import annotations

import include_graph
import layers
import pytest


def circles(root):
    return layers.circles(include_graph.read(root))


def directions(root):
    return layers.wrong_directions(include_graph.read(root))


BASE = {"trace/base/kind.h": "", "trace/base/kind.cpp": '#include "kind.h"\n'}


def test_a_tree_without_circles_passes(tree):
    root = tree({**BASE, "trace/place/dims.h": '#include "trace/base/kind.h"\n'})
    assert circles(root) == []
    assert directions(root) == []


def test_an_empty_tree_passes(tree):
    assert circles(tree({})) == []
    assert directions(tree({})) == []


def test_a_circle_of_files_is_named_with_its_lines(tree):
    root = tree({"hooks/a.h": '#pragma once\n#include "b.h"\n', "hooks/b.h": '#include "hooks/a.h"\n'})
    assert circles(root)[0] == (
        "circle of files hooks/a.h, hooks/b.h: "
        "hooks/a.h:2 includes hooks/b.h -> hooks/b.h:1 includes hooks/a.h"
    )


def test_a_circle_of_modules_passes_through_sources(tree):
    root = tree({
        "trace/a.h": "", "trace/a.cpp": '#include "a.h"\n#include "b.h"\n',
        "trace/b.h": "", "trace/b.cpp": '#include "b.h"\n#include "a.h"\n',
    })  # fmt: skip
    assert circles(root) == [
        "circle of modules trace/a, trace/b: "
        "trace/a.cpp:2 includes trace/b.h -> trace/b.cpp:2 includes trace/a.h"
    ]


def test_a_public_header_is_a_module_with_its_source(tree):
    root = tree({
        "include/ttrace/session.h": "",
        "hooks/session.cpp": '#include <ttrace/session.h>\n#include "tracer.h"\n',
        "hooks/tracer.h": "#include <ttrace/session.h>\n",
    })  # fmt: skip
    assert [sentence.split(":")[0] for sentence in circles(root)] == [
        "circle of modules hooks/session, hooks/tracer"
    ]


def test_a_circle_of_folders_needs_no_circle_of_files(tree):
    root = tree({
        "analysis/a.h": '#include "analysis/checks/b.h"\n', "analysis/checks/b.h": "",
        "analysis/checks/c.h": '#include "analysis/d.h"\n', "analysis/d.h": "",
    })  # fmt: skip
    assert [sentence.split(":")[0] for sentence in circles(root)] == [
        "circle of folders analysis, analysis/checks"
    ]


def test_a_main_program_is_above_its_folder(tree):
    root = tree({
        "examples/megatron_mini/main.cpp": '#include "layers.h"\n#include "faults/bugs.h"\n',
        "examples/megatron_mini/layers.h": "",
        "examples/megatron_mini/faults/bugs.h": '#include "layers.h"\n',
    })  # fmt: skip
    assert circles(root) == []
    root = tree({"examples/megatron_mini/options.h": '#include "faults/bugs.h"\n'})
    assert [sentence.split(":")[0] for sentence in circles(root)] == [
        "circle of folders examples/megatron_mini, examples/megatron_mini/faults"
    ]


def test_a_circle_of_folders_through_a_public_header_without_source(tree):
    root = tree({
        "trace/base/a.h": "#include <ttrace/edge.h>\n",
        "trace/base/b.h": "",
        "include/ttrace/edge.h": "#include <ttrace/merge.h>\n",
        "include/ttrace/merge.h": "",
        "trace/merge/merge.cpp": '#include <ttrace/merge.h>\n#include "trace/base/b.h"\n',
    })  # fmt: skip
    assert [sentence.split(":")[0] for sentence in circles(root)] == [
        "circle of folders trace/base, trace/merge"
    ]
    assert len(directions(root)) == 1


def test_includes_in_comments_do_not_count(tree):
    root = tree({"hooks/a.h": '// #include "a.h"\n/*\n#include "gone.h"\n*/\n'})
    graph = include_graph.read(root)
    assert graph.direct == [] and graph.unresolved == []


def test_an_include_that_no_file_is_cannot_hide(tree):
    graph = include_graph.read(tree({"hooks/a.h": '\n#include "gone.h"\n'}))
    assert graph.unresolved == ["hooks/a.h:2 includes gone.h, which no file of the project is"]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("trace/base/a.h", "trace/file/b.h"),
        ("trace/place/a.h", "trace/sums/b.h"),
        ("trace/base/a.h", "hooks/base/b.h"),
        ("hooks/base/a.h", "hooks/capture/b.h"),
        ("hooks/replace/a.h", "hooks/nudge/b.h"),
        ("hooks/base/a.h", "analysis/findings/b.h"),
        ("analysis/findings/a.h", "hooks/base/b.h"),
        ("analysis/findings/a.h", "analysis/reports/b.h"),
        ("analysis/reports/a.h", "analysis/bounds/b.h"),
        ("analysis/checks/a.h", "analysis/causes/b.h"),
        ("analysis/checks/a.h", "analysis/diff.h"),
        ("analysis/rename/a.h", "analysis/bounds/b.h"),
        ("analysis/causes/a.h", "analysis/cli/run/b.h"),
        ("analysis/cli/run/a.h", "analysis/cli/options/b.h"),
        ("analysis/cli/options/a.h", "analysis/cli/commands/b.h"),
        ("analysis/gate/a.h", "analysis/bounds/b.h"),
        ("analysis/zoom/a.h", "analysis/gate/b.h"),
        ("analysis/a.h", "analysis/guess/b.h"),
        ("hooks/base/a.h", "trace/merge/b.h"),
        ("hooks/device/cuda/a.h", "hooks/device/b.h"),
        ("examples/megatron_mini/faults/a.h", "examples/megatron_mini/program/b.h"),
        ("reference/a.h", "examples/megatron_mini/b.h"),
        ("examples/megatron_mini/a.h", "reference/b.h"),
        ("reference/a.h", "trace/base/b.h"),
    ],
)
def test_an_arrow_against_the_direction_is_named(tree, source, target):
    root = tree({source: f'#include "{target}"\n', target: ""})
    assert [sentence.split(";")[0] for sentence in directions(root)] == [f"{source}:1 includes {target}"]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("trace/merge/a.h", "trace/base/b.h"),
        ("hooks/session/a.h", "hooks/base/b.h"),
        ("hooks/base/a.h", "trace/sums/b.h"),
        ("hooks/device/a.h", "hooks/device/cuda/b.h"),
        ("analysis/cli/commands/a.h", "analysis/infer/b.h"),
        ("analysis/cli/options/a.h", "analysis/diff.h"),
        ("analysis/causes/sums/a.h", "analysis/checks/b.h"),
        ("analysis/reports/a.h", "trace/base/b.h"),
        ("reference/a.h", "include/ttrace/b.h"),
    ],
)
def test_an_arrow_along_the_direction_passes(tree, source, target):
    named = target.removeprefix("include/")
    root = tree({source: f'#include "{named}"\n', target: ""})
    assert directions(root) == []


def test_a_folder_that_no_row_judges_is_named(tree):
    root = tree({
        **BASE, "include/ttrace/a.h": "", "analysis/causes/sums/a.h": "",
        "analysis/reports/charts/a.h": "", "hooks/a.cpp": "", "python/ttrace/imports/cloud/a.py": "",
    })  # fmt: skip
    assert layers.unknown_rooms(include_graph.read(root)) == [
        f"{folder} is no room; add it to BELOW in .ci/layers.py"
        for folder in ("analysis/reports/charts", "hooks", "python/ttrace/imports/cloud")
    ]


def test_trace_and_analysis_have_no_torch(tree):
    root = tree({"trace/a.h": "#include <ATen/ATen.h>\n", "hooks/a.h": "#include <torch/nn/module.h>\n"})
    assert directions(root) == ["trace/a.h:1 includes <ATen/ATen.h>; trace/ must not use LibTorch"]


def test_torch_does_not_enter_through_a_public_header(tree):
    root = tree({
        "trace/a.h": "#include <ttrace/named_tensor.h>\n",
        "include/ttrace/named_tensor.h": "#include <torch/types.h>\n",
    })  # fmt: skip
    assert directions(root) == ["trace/a.h:1 includes <torch/types.h>; trace/ must not use LibTorch"]


def test_a_public_header_does_not_include_what_is_not_installed(tree):
    root = tree({"include/ttrace/a.h": '#include "trace/b.h"\n', "trace/b.h": ""})
    assert directions(root) == [
        "include/ttrace/a.h:1 includes trace/b.h; a public header may include public headers only"
    ]


def test_imports_for_type_checkers_and_in_functions_close_a_circle(tree):
    root = tree({
        "python/ttrace/__init__.py": "",
        "python/ttrace/a.py": "if TYPE_CHECKING:\n    from .b import B\n",
        "python/ttrace/b.py": "def f():\n    from . import a\n",
    })  # fmt: skip
    assert circles(root)[0] == (
        "circle of files python/ttrace/a.py, python/ttrace/b.py: "
        "python/ttrace/a.py:2 imports python/ttrace/b.py -> python/ttrace/b.py:2 imports python/ttrace/a.py"
    )


def test_programs_do_not_import_the_tracer(tree):
    root = tree({
        "python/ttrace/__init__.py": "", "python/ttrace/base/__init__.py": "", "python/ttrace/tracer.py": "",
        "python/ttrace/programs/plain.py": "from ..tracer import Tracer\nfrom ttrace.base import *\n",
    })  # fmt: skip
    assert directions(root) == [
        "python/ttrace/programs/plain.py:1 imports python/ttrace/tracer.py; "
        "python/ttrace/programs may use python/ttrace/base, but not python/ttrace"
    ]


def test_the_map_counts_rooms_and_arrows(tree):
    import house_map

    root = tree({
        **BASE, "trace/place/dims.h": '#include "trace/base/kind.h"\n// why\n\nstruct Dims {\n};\n',
        "include/ttrace/dims.h": "",
    })  # fmt: skip
    text = house_map.text(root, include_graph.read(root), layers.room_of)
    assert "trace/place                          1      5      3  trace/base 1" in text.splitlines()
    assert "all                                  4      6      4" in text.splitlines()
    assert "public headers: 1 (dims)" in text
    assert "circles: 0 of files, 0 of modules, 0 of folders" in text
