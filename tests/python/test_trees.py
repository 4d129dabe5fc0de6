from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import torch
from ttrace.base.trees import map_tensors, tensors_of

Pair = namedtuple("Pair", "first second")


@dataclass(frozen=True)
class Output:
    hidden: torch.Tensor
    name: str = "x"


A, B = torch.zeros(1), torch.ones(2)


def test_tensors_are_found_in_any_structure_and_in_order():
    tree = (A, [B, None, "text", {"k": A}], Pair(B, 3), Output(A), OrderedDict(z=B))
    assert [t is A for t in tensors_of(tree)] == [True, False, True, False, True, False]


def test_what_stays_the_same_stays_the_same_object():
    tree = {"a": (A, [B]), "b": Output(A)}
    assert map_tensors(tree, lambda tensor: tensor) is tree


def test_replaced_tensors_keep_the_types_around_them():
    result = map_tensors((Pair(A, 1), Output(B, "y"), OrderedDict(k=[A])), lambda tensor: tensor + 1)
    assert isinstance(result[0], Pair) and result[0].second == 1 and result[0].first.item() == 1
    assert isinstance(result[1], Output) and result[1].name == "y" and result[1].hidden[0] == 2
    assert isinstance(result[2], OrderedDict) and result[2]["k"][0].item() == 1
    assert A.item() == 0


def test_a_method_or_a_class_is_no_container():
    assert list(tensors_of((len, Output, object()))) == []
