from __future__ import annotations

import torch
from torch import nn
from ttrace.base.names import canonical, traced_modules


def test_what_wrappers_insert_is_left_out():
    assert canonical("_orig_mod.layers.0._checkpoint_wrapped_module.w1") == "layers.0.w1"
    assert canonical("a+b.c d") == "a_b.c_d"


def test_a_module_registered_twice_has_its_first_name():
    shared = nn.Linear(2, 2)
    model = nn.ModuleDict({"first": shared, "second": shared})
    assert [path for path, _ in traced_modules(model)] == ["", "first"]


def test_a_compiled_region_is_one_module_and_said_to_be(caplog):
    model = nn.Sequential(nn.Linear(2, 2), torch.compile(nn.Sequential(nn.Linear(2, 2), nn.GELU())))
    assert [path for path, _ in traced_modules(model)] == ["", "0", "1"]
    assert "1 is compiled: its inputs and outputs are traced, but the tensors inside are not" in caplog.text


def test_a_module_compiled_in_place_is_not_hooked_and_said_why(caplog):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].compile()
    assert [path for path, _ in traced_modules(model)] == ["", "0"]
    assert "use torch.compile(module)" in caplog.text
