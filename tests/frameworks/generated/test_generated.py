"""Programs drawn at random: valid by construction, clean under `ttrace check`, and smaller where they fail."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python")]

import graphs  # noqa: E402
from conftest import Checker  # noqa: E402
from hunt import cases, entry_of, summary  # noqa: E402
from kinds import ALARM, CLEAN, REFUSED, Graphs, Options, Result, kinds, shrunk  # noqa: E402
from scripts import PROGRAMS  # noqa: E402


def test_graphs_fit_and_come_back_from_their_text():
    operators = set()
    for seed in range(200):
        graph = graphs.draw(seed)
        graphs.shapes_of(graph)  # raises where sizes do not fit
        compile(graphs.script_of(graph), "script", "exec")
        assert graphs.graph_of(graph.text()) == graph
        operators |= {node.op for node in graph.nodes.values()}
    assert operators == set(graphs.OPERATORS)


def test_what_graphs_shrink_to_fits_as_well():
    for seed in range(30):
        for simpler in graphs.smaller(graphs.draw(seed)):
            graphs.shapes_of(simpler)
            compile(graphs.script_of(simpler), "script", "exec")


def test_a_failure_shrinks_to_the_operator_that_fails():
    class Kind(Graphs):
        def run(self, graph, check):
            fails = any(node.op == "softmax" and graph.nodes for node in graph.nodes.values())
            return Result(ALARM if fails else CLEAN)

    seed = next(s for s in range(100) if "softmax" in {n.op for n in graphs.draw(s).nodes.values()})
    graph, result = shrunk(Kind(Path()), graphs.draw(seed), Result(ALARM), None, 500)
    assert result.judgement == ALARM
    assert len(graph.nodes) <= 3 and graph.mesh == (2,)  # softmax, and something to train


@pytest.mark.parametrize("name", PROGRAMS)
def test_options_come_back_from_their_text(name):
    program = PROGRAMS[name]
    for seed in range(50):
        case = program.draw(seed)
        assert program.why_impossible(case) == ""
        assert program.case_of(program.text(case)) == case
        assert all(program.why_impossible(simpler) == "" for simpler in program.smaller(case))


class Drawn(Graphs):
    """Graphs that are not run: every third seed raises an alarm, whatever is left out of it."""

    def draw(self, seed, precision):
        self.seed = seed
        return super().draw(seed, precision)

    def run(self, graph, check):
        if self.seed % 3:
            return Result(CLEAN, tensors=10)
        report = {"verdict": "diverged", "first_divergence": {"id": "s0/m0/output/n0/0"}, "tensors": ["many"]}
        return Result(ALARM, "s0/m0/output/n0/0: out of bound", 10, report)


def test_a_hunt_logs_alarms_with_their_reports_and_goes_on_where_it_ended(tmp_path):
    kind = Drawn(tmp_path)
    found = [entry_of("graphs", kind, seed, tmp_path, 5) for seed in range(1, 5)]
    assert [entry["judgement"] for entry in found] == [CLEAN, CLEAN, ALARM, CLEAN]
    alarm = found[2]
    assert alarm["report"]["first_divergence"]["id"] == "s0/m0/output/n0/0" and "tensors" not in alarm["report"]
    assert len(alarm["smaller"]["case"]) < len(alarm["case"]) and "torch" in alarm["versions"]
    following = cases(["graphs"], {"graphs": kind}, 1, {("graphs", entry["seed"]) for entry in found})
    assert next(following) == ("graphs", 5)
    said = summary(found)
    assert "4 programs in" in said and "| graphs | 4 | 3 | 1 | 0 | 0 | 40 |" in said and "ALARM graphs 3" in said


def test_a_hunt_takes_the_kinds_in_turn(tmp_path):
    every = {"graphs": Graphs(tmp_path), "other": Graphs(tmp_path)}
    order = cases(["graphs", "other"], every, 7, {("other", 7)})
    assert [next(order) for _ in range(4)] == [("graphs", 7), ("graphs", 8), ("other", 8), ("graphs", 9)]


# Symptom: graph 2 was "the logical shape differs between ranks", and graph 5 "parameter n0.weight is 4x12 here": their linears are cut
# unevenly.
SEEDS = [pytest.param(seed, marks=[] if seed < 3 else pytest.mark.full) for seed in range(30)]


@pytest.mark.parametrize("seed", SEEDS)
def test_clean_graphs_raise_no_alarm(tmp_path, seed):
    kind = kinds(tmp_path)["graphs"]
    result = kind.run(kind.draw(seed, None), Checker(tmp_path))
    assert result.judgement in (CLEAN, REFUSED), result.detail


# A tensor cut along both of two dimensions that are then merged, as 2 x 2 ranks hold it.
MERGED = """{"precision":"f32","seed":1,"mesh":[2,2],"inputs":{"x0":[[8,8,12],["PLACE","R"]]},"nodes":{
"n0":{"op":"linear","inputs":["x0"],"numbers":[],"weights":[["weight",[4,12],["R","S0"]]],"placements":[]},
"n1":{"op":"flatten","inputs":["n0"],"numbers":[1,2],"weights":[],"placements":[]}}}"""


@pytest.mark.parametrize("place", ["S1", pytest.param("R", marks=pytest.mark.full)])
def test_merged_dimensions_of_which_the_inner_one_is_cut_are_put_together(tmp_path, place):
    """Symptom: `flatten` had the cause "interleaved: 8 x 2 blocks read as 2 x 8"."""
    kind = kinds(tmp_path)["graphs"]
    result = kind.run(graphs.graph_of(MERGED.replace("PLACE", place)), Checker(tmp_path))
    assert result.judgement == CLEAN, result.detail


@pytest.mark.parametrize(
    ("name", "seed"),
    [pytest.param("dtensor", 1)]
    + [pytest.param(name, seed, marks=pytest.mark.full) for name in PROGRAMS for seed in range(2, 6)],
)
def test_clean_options_raise_no_alarm(tmp_path, name, seed):
    kind = Options(PROGRAMS[name])
    if kind.missing():
        pytest.skip(f"{kind.missing()} cannot be imported")
    result = kind.run(kind.draw(seed, None), Checker(tmp_path))
    assert result.judgement == CLEAN, result.detail
