"""Functions and files that are too long."""

from __future__ import annotations

import lengths


def body(lines: int) -> str:
    return "  x = 1;\n" * lines


def test_a_long_function_is_named_with_its_line(tree):
    root = tree({"trace/a.cpp": "\nint f(int x) {\n" + body(59) + "}\n"})
    assert lengths.long_functions(root) == ["trace/a.cpp:2: f has 61 lines; split it, 60 are allowed"]


def test_sixty_lines_are_allowed(tree):
    assert lengths.long_functions(tree({"trace/a.cpp": "int f(int x) {\n" + body(58) + "}\n"})) == []


def test_kernels_and_methods_in_headers_count(tree):
    root = tree({
        "trace/cuda/sums.cu": "__global__ void sum(int x) {\n" + body(60) + "}\n",
        "hooks/a.h": "class A {\n  void f(int x) {\n" + body(60) + "  }\n};\n",
    })  # fmt: skip
    assert lengths.long_functions(root) == [
        "hooks/a.h:2: f has 62 lines; split it, 60 are allowed",
        "trace/cuda/sums.cu:1: sum has 62 lines; split it, 60 are allowed",
    ]


def test_python_functions_count_without_their_decorators(tree):
    root = tree({"python/ttrace/a.py": "@d\nasync def f():\n" + "    x = 1\n" * 60})
    assert lengths.long_functions(root) == ["python/ttrace/a.py:2: f has 61 lines; split it, 60 are allowed"]
    assert lengths.long_functions(tree({"python/ttrace/a.py": "@d\ndef f():\n" + "    x = 1\n" * 59})) == []


def test_tests_may_be_longer(tree):
    root = tree({
        "tests/a_test.cpp": "TEST(Suite, Short) {\n" + body(98) + "}\n",
        "tests/b_test.cpp": "TEST(Suite, Long) {\n" + body(99) + "}\n",
    })  # fmt: skip
    assert lengths.long_functions(root) == ["tests/b_test.cpp:1: TEST has 101 lines; split it, 100 are allowed"]


def test_a_long_file_is_named(tree):
    root = tree({
        "analysis/long.h": "\n" * 501, "analysis/short.h": "\n" * 500, "tests/long.cpp": "\n" * 1201,
        "tests/short.cpp": "\n" * 1200, "examples/data.yaml": "\n" * 2000, "analysis/reports/page/page.js": "\n" * 501,
    })  # fmt: skip
    assert lengths.long_files(root) == [
        "analysis/long.h has 501 lines; split it, 500 are allowed",
        "analysis/reports/page/page.js has 501 lines; split it, 500 are allowed",
        "tests/long.cpp has 1201 lines; split it, 1200 are allowed",
    ]
