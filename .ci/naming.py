#!/usr/bin/env python3
"""Fails on a name that breaks the rules of .clang-tidy, as far as a parser of definitions sees it.

Files and folders, functions and namespaces are snake_case, types are CamelCase, enumerators and constants
are kCamelCase, macros are UPPER_CASE, private members end in an underscore. Headers begin with #pragma once.
clang-tidy knows more and takes an hour; this takes a second.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import sources
from sources import Tag

FOLDERS = (*sources.PRODUCT, "tests")
SNAKE = re.compile(r"_*[a-z][a-z0-9_]*")
CAMEL = re.compile(r"[A-Z][A-Za-z0-9]*")
CONSTANT = re.compile(r"k[A-Z0-9][A-Za-z0-9]*")
UPPER = re.compile(r"[A-Z][A-Z0-9_]*")

# Functions that GoogleTest and libFuzzer call by name.
GIVEN = (
    "SetUp",
    "TearDown",
    "PrintTo",
    "LLVMFuzzerTestOneInput",
    "isStreamCapturing",  # of LibTorch since 2.13, so that it cannot say override
    "cuThreadExchangeStreamCaptureMode",  # of CUDA's driver
    "cuStreamIsCapturing",
)

RULES = {
    "class": (CAMEL, "CamelCase"),
    "struct": (CAMEL, "CamelCase"),
    "union": (CAMEL, "CamelCase"),
    "enum": (CAMEL, "CamelCase"),
    "enumerator": (CONSTANT, "kCamelCase"),
    "function": (SNAKE, "snake_case"),
    "namespace": (SNAKE, "snake_case"),
    "macro": (UPPER, "UPPER_CASE"),
}
_CONSTEXPR = re.compile(
    r"^[ \t]*(?:(?:inline|static)[ \t]+)*constexpr[ \t]+(?:[\w:<>,&*]+[ \t]+)+?(\w+)(?:\[\w*\])*[ \t]*[={]"
)


def file_offences(root: Path) -> Iterator[str]:
    for path in sources.files(root, FOLDERS, sources.CPP + sources.PYTHON):
        for part in Path(path).with_suffix("").parts:
            if not SNAKE.fullmatch(part):
                yield f"{path}: {part} must be snake_case"
        if path.endswith((".h", ".cuh")):
            text = sources.without_comments(sources.read(root, path))
            if text.split() and text.split()[:2] != ["#pragma", "once"]:
                yield f"{path}: a header must begin with #pragma once"


def tag_offences(root: Path, tags: list[Tag]) -> Iterator[str]:
    for tag in tags:
        if _is_given(tag) or _is_variable_of_c(root, tag):
            continue
        rule, style = RULES.get(tag.kind, (None, ""))
        if rule and not rule.fullmatch(tag.name):
            yield f"{tag.path}:{tag.line}: {tag.kind} {tag.name} must be {style}"
        if _is_private_member(tag) and not (tag.name.endswith("_") or CONSTANT.fullmatch(tag.name)):
            yield f"{tag.path}:{tag.line}: private member {tag.name} must end in an underscore"
        if _is_global_constant(tag) and not CONSTANT.fullmatch(tag.name):
            yield f"{tag.path}:{tag.line}: constant {tag.name} must be kCamelCase"


def _is_given(tag: Tag) -> bool:
    """Names that the language, a library or a macro gives: constructors, overrides, SetUp, TEST."""
    if tag.name.startswith("__anon") or tag.name == "YAML":  # yaml-cpp's own namespace, declared ahead
        return True
    if tag.kind != "function":
        return False
    is_structor = tag.name.lstrip("~") == tag.scope.split(":")[-1]
    is_macro = UPPER.fullmatch(tag.name) is not None
    is_override = "override" in tag.properties.split(",")
    return is_structor or is_macro or is_override or tag.name.startswith("operator") or tag.name in GIVEN


def _is_variable_of_c(root: Path, tag: Tag) -> bool:
    """`struct sigaction action {};` looks like the definition of a type."""
    if tag.kind != "struct" or CAMEL.fullmatch(tag.name):
        return False
    line = sources.read(root, tag.path).splitlines()[tag.line - 1]
    return re.search(rf"struct\s+[a-z_]+\s+{tag.name}\b", line) is not None


def _is_private_member(tag: Tag) -> bool:
    is_static = "static" in tag.properties.split(",")
    is_private = tag.access == "private" and tag.scope.startswith("class:")
    return tag.kind == "member" and is_private and not is_static


def _is_global_constant(tag: Tag) -> bool:
    is_global = tag.scope == "" or tag.scope.startswith("namespace:")
    is_pointer = tag.type.rstrip().endswith("*")  # the pointer may change
    is_constant = tag.type.startswith("typename:const ") and not is_pointer and not UPPER.fullmatch(tag.name)
    return tag.kind == "variable" and is_global and is_constant


def constant_offences(root: Path, paths: list[str]) -> Iterator[str]:
    for path in paths:
        for number, line in enumerate(sources.read(root, path).splitlines(), 1):
            found = _CONSTEXPR.match(line)
            if found and found[1] not in ("if", "operator") and not CONSTANT.fullmatch(found[1]):
                yield f"{path}:{number}: constant {found[1]} must be kCamelCase"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=sources.ROOT)
    root = parser.parse_args().root
    paths = sources.files(root, FOLDERS, sources.CPP)
    found = [
        *file_offences(root),
        *tag_offences(root, sources.tags(root, paths)),
        *constant_offences(root, paths),
    ]
    return sources.finish("naming", sorted(set(found)))


if __name__ == "__main__":
    sys.exit(main())
