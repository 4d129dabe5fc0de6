"""DDP over a part of the ranks, and over ranks that share samples."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import python, torchrun
from ttrace.base.layout import Axis, Layout
from ttrace.programs.rank_axes import RankAxes, axes_around, axes_of_group, named_axes

PROGRAM = str(Path(__file__).parent / "programs" / "ddp_groups.py")


def run(check, reference: str, candidate: str):
    programs = [python(f"{PROGRAM} {reference}"), torchrun(4, f"{PROGRAM} {candidate}")]
    return check(*programs, "--noise", "2", "--no-forced", steps="0:1")


def rank_axes(rank: int, group: list[int] | None, axes: dict[str, int] | None, ranks: int = 8) -> RankAxes:
    found = RankAxes(Layout(rank, ranks), group)
    found.divide(axes)
    return found


def test_ranks_that_share_samples_may_be_within_ddps_group(check):
    """Symptom: "axis dp is declared twice": DDP's four ranks were named dp, and the program's dp is a half of them."""
    right = run(check, "--by samples", "--by samples --axes dp gp")
    assert right.code == 0, right.summary()
    wrong = run(check, "--by samples", "--by samples --axes dp gp --wrong")
    assert wrong.code == 1, wrong.summary()
    assert wrong.first.startswith(("s0/m0/grad_output/head/", "s0/main_grad/")), wrong.summary()


# Nobody says which ranks have different samples, so the mean over them lacks in all gradients.
UNNAMED = "s0/m0/grad_output/head/0"
# With DDP over each rank alone nobody says either that four ranks are two axes.
ONE_AXIS = "s0/param/blocks.0.up/0"


@pytest.mark.parametrize(
    ("axes", "located"),
    [
        ("--axes dp tp", "s0/main_grad/words.weight/0"),
        ("--axes copies tp", UNNAMED),
        ("", ONE_AXIS),
        pytest.param("--inner", ONE_AXIS, marks=pytest.mark.full),
        ("--inner --axes tp dp", "s0/main_grad/words.weight/0"),
    ],
)
def test_ddp_over_a_part_of_the_ranks(check, axes, located):
    """Symptom: without axes, "parameter blocks.0.up is 36x24 here, but 72x24 in the trace to start from" ended the run."""
    right = run(check, "", axes)
    assert right.code == 0, right.summary()
    wrong = run(check, "", f"{axes} --wrong")
    assert wrong.code == 1, wrong.summary()
    assert wrong.first == located, wrong.summary()


AXES = {"pp": 2, "dp": 2, "tp": 2}


@pytest.mark.parametrize(
    ("group", "names"),
    [
        ([0, 1], ["tp"]),
        ([0, 2], ["dp"]),
        ([0, 4], ["pp"]),
        ([0, 1, 2, 3], ["dp", "tp"]),
        ([0, 1, 4, 5], ["pp", "tp"]),
        (list(range(8)), ["pp", "dp", "tp"]),
        ([0, 3], []),
        ([0, 1, 2], []),
        ([0, 1, 6, 7], []),
    ],
)
def test_a_group_is_the_product_of_axes_or_none(group, names):
    for rank in group:
        assert axes_of_group(group, named_axes(AXES, Layout(rank, 8)), rank) == names


def test_names_of_the_program_rule():
    axes = rank_axes(3, [1, 3, 5, 7], AXES)
    assert axes.samples() == ["dp"] and axes.addends(["dp"]) == ["pp", "dp"] and axes.is_by_hand
    without_dp = rank_axes(3, [1, 3, 5, 7], {"nodes": 2, "gpus": 2, "tp": 2})
    assert without_dp.samples() == ["nodes", "gpus"] and without_dp.addends(["nodes", "gpus"]) == ["nodes", "gpus"]
    assert not rank_axes(3, list(range(8)), {"nodes": 4, "gpus": 2}).is_by_hand


def test_a_group_that_has_no_samples_of_its_own_divides_no_gradient():
    beside = rank_axes(3, [2, 3], AXES)  # the axis tp
    assert beside.samples() == ["dp"] and beside.addends(["dp"]) == ["dp"]


def test_a_group_of_no_axes_is_dp_unless_the_program_has_that_name():
    layout = Layout(3, 8)
    RankAxes(layout, [0, 3]).divide({"nodes": 4, "gpus": 2})
    assert layout.axes == [Axis("nodes", 4, 1), Axis("gpus", 2, 1), Axis("dp", 2, 1)]
    assert rank_axes(3, [0, 3], AXES).samples() == ["dp"]


def test_without_names_the_other_ranks_are_an_axis():
    assert axes_around([0, 1, 2, 3], 4) == {"dp": 4, "ranks": 1}
    assert axes_around([2, 3], 8) == {"ranks": 4, "dp": 2}
    assert axes_around([1, 5], 8) == {"dp": 2, "ranks": 4}
    assert axes_around([5, 7], 8) == {"ranks": 2, "dp": 2, "ranks_within": 2}
    assert axes_around([3], 8) == {"ranks": 8, "dp": 1}
    for irregular in ([0, 3], [1, 2], [0, 1, 3], [0, 1, 2]):
        assert axes_around(irregular, 8) == {}


def test_of_one_wrapper_over_all_ranks_nothing_changes():
    layout = Layout(3, 8)
    axes = RankAxes(layout, list(range(8)))
    axes.divide(None)
    assert layout.axes == [Axis("dp", 8, 3)] and not axes.is_by_hand
    assert axes.addends(axes.samples()) == ["dp"]
