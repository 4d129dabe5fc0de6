from __future__ import annotations

import re

import pytest
import torch
from torch import nn
from ttrace.base.compiled import hidden_ids, sentence
from ttrace.base.names import canonical, traced_modules


def test_what_wrappers_insert_is_left_out():
    assert canonical("_orig_mod.layers.0._checkpoint_wrapped_module.w1") == "layers.0.w1"
    assert canonical("a+b.c d") == "a_b.c_d"


def test_a_module_registered_twice_has_its_first_name():
    shared = nn.Linear(2, 2)
    model = nn.ModuleDict({"first": shared, "second": shared})
    assert [path for path, _ in traced_modules(model)] == ["", "first"]


@pytest.mark.parametrize("in_place", [False, True])
def test_a_compiled_region_is_one_module(in_place):
    inner = nn.Sequential(nn.Linear(2, 2), nn.GELU())
    model = nn.Sequential(nn.Linear(2, 2), inner if in_place else torch.compile(inner))
    if in_place:
        inner.compile()
    assert [path for path, _ in traced_modules(model)] == ["", "0", "1"]


def test_a_module_that_must_not_be_compiled_shows_what_lies_inside():
    model = nn.Sequential(torch.compiler.disable(nn.Sequential(nn.Linear(2, 2))))
    assert [path for path, _ in traced_modules(model)] == ["", "0", "0.0"]


def test_what_lies_in_compiled_modules_is_told_from_what_does_not():
    ids = {
        "s0/m0/output/layers.0/0": False,
        "s0/m0/output/layers.0.attention/0": True,
        "s0/m0/grad_input/layers.0.attention.wq/0": True,
        "s0/m1/output/layers.0.norm/0~": True,
        "s0/m0/output/layers.10.attention/0": False,
        "s0/m0/param_grad/layers.0.attention.wq.weight/0": False,
        "s0/main_grad/layers.0.attention.wq.weight/0": False,
        "s0/m0/output/head/0": False,
    }
    pattern = hidden_ids(["layers.0", "layers.2"], False)
    assert {i: bool(re.search(pattern, i)) for i in ids} == ids
    of_stages = hidden_ids(["layers.0", "layers.2"], True)
    assert re.search(of_stages, "s0/m0/output/layers.10.attention/0"), "another stage has it"
    of_all = hidden_ids(["model"], False)
    assert not re.search(of_all, "s0/m0/output/model/0") and re.search(of_all, "s0/m0/output/head/0")


def test_the_sentence_on_compiled_modules_names_some_and_counts_the_rest():
    assert sentence(["a"]) == "a is compiled: what it takes and returns is recorded, what lies inside is not"
    assert sentence(list("abcde")).startswith("a, b, c and 2 more are compiled: what they take and return is")
