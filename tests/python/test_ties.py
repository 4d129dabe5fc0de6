"""Parameters of two names, whose tie a wrapper may break."""

from __future__ import annotations

import pytest
from conftest import HERE, python, torchrun
from torch import nn
from ttrace.base.ties import refuse_broken_ties, ties_in, write_ties

PROGRAM = str(HERE / "programs" / "tied.py")


def tied() -> nn.ModuleDict:
    model = nn.ModuleDict({"tok": nn.Embedding(4, 2), "norm": nn.LayerNorm(2), "head": nn.Linear(2, 4, bias=False)})
    model["head"].weight = model["tok"].weight
    return model


def test_a_tie_has_the_first_name_of_the_parameter():
    assert ties_in(tied()) == {"head.weight": "tok.weight"}
    assert ties_in(nn.Linear(2, 2)) == {}


def test_only_two_parameters_of_their_own_break_a_tie(tmp_path):
    write_ties(str(tmp_path), ties_in(tied()))
    refuse_broken_ties(str(tmp_path), ["tok.weight", "norm.weight"])
    refuse_broken_ties(str(tmp_path), ["head.weight"])  # the same tie under its other name: another error's to say
    refuse_broken_ties(str(tmp_path / "without"), ["tok.weight", "head.weight"])
    with pytest.raises(RuntimeError, match=r"head.weight is the same tensor as tok.weight in the reference.*is broken"):
        refuse_broken_ties(str(tmp_path), ["tok.weight", "head.weight"])


def test_a_broken_tie_is_said_as_that(check):
    """Symptom: "no parameter head.weight; the nearest name is norm.weight"."""
    right = check(python(PROGRAM), torchrun(2, PROGRAM), steps="0:1")
    assert right.code == 0, right.summary()
    wrong = check(python(PROGRAM), torchrun(2, f"{PROGRAM} --broken"), steps="0:1")
    assert wrong.code == 2
    assert "head.weight is the same tensor as tok.weight in the reference" in wrong.errors


def test_a_broken_tie_is_a_finding_where_both_keep_their_parameters(check):
    outcome = check(python(PROGRAM), torchrun(2, f"{PROGRAM} --broken"), "--start", "own", steps="0:1")
    assert outcome.first == "s0/param/head.weight/0", outcome.summary()
    cause = next(tensor["cause"] for tensor in outcome.report["tensors"] if tensor["id"] == outcome.first)
    assert "head.weight is the same tensor as tok.weight in the reference" in cause
    assert "the tie is broken" in cause
