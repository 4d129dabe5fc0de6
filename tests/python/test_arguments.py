"""Slots of inputs follow the parameters of forward."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from ttrace.base.arguments import Slots


class Attention(nn.Module):
    def forward(self, x, mask=None, table=None, *, cache=None, **rest):
        return x


class Anything(nn.Module):
    def forward(self, *args, **kwargs):
        return args[0]


X = torch.ones(2)


@pytest.mark.parametrize(
    ("args", "kwargs", "argument", "slot"),
    [
        ((X, X, X), {}, 2, 2),
        ((X, None, X), {}, 2, 2),  # Symptom: a mask that one side passes moved the table from 1 to 2
        ((X,), {"table": X}, "table", 2),
        ((), {"table": X, "x": X}, "x", 0),
        ((X,), {"cache": X}, "cache", 3),
        ((X,), {"second": X, "first": X}, "first", 5),
    ],
)
def test_an_argument_has_the_number_of_its_parameter(args, kwargs, argument, slot):
    assert Slots(Attention(), args, kwargs).of(argument, 0) == slot


def test_tensors_of_a_container_follow_in_steps():
    slots = Slots(Attention(), (X,), {"cache": (X, X)})
    assert [slots.of("cache", number) for number in range(3)] == [3, 7, 11]


def test_arguments_without_a_name_are_numbered_as_they_are_passed():
    slots = Slots(Anything(), (X, X), {"b": X, "a": X})
    assert [slots.of(which, 0) for which in (0, 1, "b", "a")] == [0, 1, 2, 3]


def test_a_wrapper_passes_what_the_wrapped_module_calls_by_name():
    wrapped = checkpoint_wrapper(Attention())
    assert Slots(wrapped, (X,), {"table": X}).of("table", 0) == 2


def test_a_forward_that_another_one_replaces_keeps_its_names():
    module = Attention()
    own = module.forward

    @functools.wraps(own)
    def forward(*args, **kwargs):
        return own(*args, **kwargs)

    module.forward = forward
    assert Slots(module, (X,), {"table": X}).of("table", 0) == 2


def test_the_forward_of_no_python_code_is_numbered_by_position():
    module = nn.Linear(2, 2)
    module.forward = torch._C._nn.gelu
    assert Slots(module, (X, X), {}).of(1, 0) == 1
