"""Names that break the rules."""

from __future__ import annotations

import naming
import pytest
import sources


def offences(root):
    paths = sources.files(root, naming.FOLDERS, sources.CPP)
    return [
        *naming.file_offences(root),
        *naming.tag_offences(root, sources.tags(root, paths)),
        *naming.constant_offences(root, paths),
    ]


@pytest.mark.parametrize(
    ("text", "offence"),
    [
        ("struct noise_row {};", "struct noise_row must be CamelCase"),
        ("enum class Kind { Output };", "enumerator Output must be kCamelCase"),
        ("int nextRow() { return 1; }", "function nextRow must be snake_case"),
        ("namespace Trace { int x; }", "namespace Trace must be snake_case"),
        ("#define check(x) x", "macro check must be UPPER_CASE"),
        ("class A {\n  int size;\n};", "private member size must end in an underscore"),
        ("const int limit = 3;", "constant limit must be kCamelCase"),
        ("namespace n {\nconstexpr double limit = 3;\n}", "constant limit must be kCamelCase"),
        ("void f() {\n  static constexpr int limits[] = {1};\n}", "constant limits must be kCamelCase"),
    ],
)
def test_a_wrong_name_is_named(tree, text, offence):
    found = offences(tree({"trace/a.cpp": text + "\n"}))
    assert len(set(found)) == 1
    assert found[0].startswith("trace/a.cpp:") and found[0].endswith(offence)


@pytest.mark.parametrize(
    "text",
    [
        "class Trace {\n public:\n  Trace() {}\n  ~Trace() {}\n  bool operator<(Trace) {}\n};",
        "class Trace {\n private:\n  int size_;\n  static int count;\n};",
        "struct Row {\n  int size;\n  static constexpr int kWidth = 3;\n};",
        "constexpr int width(int x) { return x; }",
        "const char* name = nullptr;",
        "void f() {\n  struct sigaction action {};\n}",
        "class Backend : Base {\n  const std::string getBackendName() const override { return name_; }\n};",
        "TEST_F(Suite, Case) {\n}",
        "enum class Kind { kOutput, k2 };",
        "#define TTRACE_CHECK(x) x",
        "auto f() {\n  if constexpr (sizeof(int) == 4) {\n  }\n}",
    ],
)
def test_right_names_pass(tree, text):
    assert offences(tree({"trace/a.cpp": text + "\n"})) == []


def test_files_and_folders_are_snake_case(tree):
    root = tree({"trace/TraceFile.cpp": "", "hooks/Base/a.cpp": "", "python/ttrace/__init__.py": ""})
    assert offences(root) == [
        "hooks/Base/a.cpp: Base must be snake_case",
        "trace/TraceFile.cpp: TraceFile must be snake_case",
    ]


def test_a_header_begins_with_pragma_once(tree):
    root = tree({
        "trace/a.h": "// What it is.\n#pragma once\nint x;\n",
        "trace/b.h": "#ifndef B_H\n#define B_H\n#endif\n",
    })  # fmt: skip
    assert offences(root) == ["trace/b.h: a header must begin with #pragma once"]
