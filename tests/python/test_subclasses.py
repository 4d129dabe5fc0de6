"""Parameters and losses that are subclasses of torch.Tensor."""

from __future__ import annotations

import pytest
import torch
from conftest import HERE, python, torchrun
from torch import nn
from ttrace.base.local_part import is_wrapped, local_part, unwrapped
from ttrace.base.values import Parameter
from ttrace.tracer import _refuse_unreadable


PROGRAM = str(HERE / "programs" / "dtensor_loss.py")


class Cast(torch.Tensor):
    """Keeps its elements in one tensor, as torchao's weights do that are cast to FP8 when they are gathered."""

    @staticmethod
    def __new__(cls, inner, *rest):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner, *rest):
        self.inner, self.rest = inner, rest

    def __tensor_flatten__(self):
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner, *unused):
        return Cast(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        plain = torch.utils._pytree.tree_map(lambda t: t.inner if isinstance(t, Cast) else t, (args, kwargs or {}))
        result = function(*plain[0], **plain[1])
        return Cast(result) if function in (torch.ops.aten.detach.default,) else result


class Halves(Cast):
    """Keeps them in two."""

    def __tensor_flatten__(self):
        return ["inner", "other"], None

    @property
    def other(self):
        return self.rest[0]


def test_a_subclass_around_one_tensor_is_read_as_that_tensor():
    inner = torch.randn(3, 2)
    parameter = nn.Parameter(Cast(inner))
    assert is_wrapped(parameter)
    assert unwrapped(parameter).data_ptr() == inner.data_ptr(), "the memory that the program trains"
    assert torch.equal(local_part(parameter.detach()), inner)


def test_a_plain_tensor_is_what_it_is():
    plain = torch.ones(2)
    assert unwrapped(plain) is plain and not is_wrapped(plain)


def test_a_subclass_of_several_tensors_is_refused_by_name():
    """Symptom: "parameter 0.weight is a tensor subclass, so it cannot be attached", without a remedy."""
    weight = Halves(torch.ones(2), torch.ones(2))
    with pytest.raises(TypeError, match=r"cannot read the parameter 0\.weight, a Halves.*dequantize"):
        _refuse_unreadable([Parameter("0.weight", unwrapped(weight), None, weight)])


@pytest.mark.parametrize(("option", "first"), [("", ""), ("--wrong", "s0/m0/grad_output/loss/0")])
def test_the_loss_may_be_a_dtensor(check, option, first):
    """Symptom: "a tensor subclass, so it was not recorded", and then a divergence."""
    outcome = check(python(PROGRAM), torchrun(2, f"{PROGRAM} {option}"), steps="0:1")
    assert outcome.first == first, outcome.summary()
    if not option:
        assert {"s0/m0/loss/loss/0", "s0/m0/grad_output/loss/0"} <= set(outcome.ids())
