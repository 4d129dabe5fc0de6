"""Random options of training scripts: what each takes, which go together, and how they simplify.

A program is one entry of PROGRAMS: the choices of every option, the simplest first, a rule that says which cannot be
together, and two functions that write them down. Another script needs an entry and nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
Case = dict[str, object]
MOST_RANKS = 4
ATTEMPTS = 2000


@dataclass(frozen=True)
class Program:
    script: Path
    choices: dict[str, tuple]  # by option; the first one is the simplest
    rare: tuple[str, ...]  # options that mostly have their simplest value
    ranks: Callable[[Case], int]
    problem: Callable[[Case], str]  # why these options cannot be together; empty if they can
    common: Callable[[Case], str]  # options of both runs
    candidate: Callable[[Case], str]
    reference: Callable[[Case], str] = lambda case: ""
    needs: str = ""  # module

    def why_impossible(self, case: Case) -> str:
        ranks = self.ranks(case)
        if not 2 <= ranks <= MOST_RANKS:
            return f"{ranks} ranks"
        return self.problem(case)

    def draw(self, seed: int, precision: str | None = None) -> Case:
        source = random.Random(seed)
        for _ in range(ATTEMPTS):
            case: Case = {"seed": source.randrange(1, 1000)}
            for name, values in self.choices.items():
                is_simple = name in self.rare and source.random() < 0.7
                case[name] = values[0] if is_simple else source.choice(values)
            if precision is not None:
                case["precision"] = precision
            if not self.why_impossible(case):
                return case
        raise RuntimeError(f"{self.script}: no case was possible in {ATTEMPTS} attempts")

    def smaller(self, case: Case) -> Iterator[Case]:
        """Each option at its simplest value, then at simpler ones; what is left must still be possible."""
        for name, values in self.choices.items():
            if name not in case or case[name] not in values:
                continue
            for value in values[: values.index(case[name])]:
                simpler = {**case, name: value}
                if name != "precision" and not self.why_impossible(simpler):
                    yield simpler
        if case["seed"] != 1:
            yield {**case, "seed": 1}

    def text(self, case: Case) -> str:
        """`name=value` of what is not at its simplest."""
        entries = {name: value for name, value in case.items() if value != self.choices.get(name, (None,))[0]}
        return " ".join(f"{name}={value}" for name, value in entries.items())

    def case_of(self, text: str) -> Case:
        """Inverse of text()."""
        case: Case = {"seed": 1, **{name: values[0] for name, values in self.choices.items()}}
        for name, value in (entry.split("=", 1) for entry in text.split()):
            known = self.choices.get(name, (int(value),) if name == "seed" else ())
            found = [choice for choice in known if str(choice) == value]
            if not found:
                raise ValueError(f"{name}={value} is no option of {self.script}; it has {self.choices.get(name)}")
            case[name] = found[0]
        return case


def _flags(case: Case, *names: str) -> str:
    """`--name` of switches that are on, `--name value` of others that are not None."""
    words = []
    for name in names:
        value = case[name]
        if value is True:
            words.append(f"--{name}")
        elif value not in (False, None):
            words.append(f"--{name} {value}")
    return " ".join(words)


# --- examples/dtensor --------------------------------------------------------------------------------


def _dtensor_ranks(case: Case) -> int:
    return int(case["data"]) * int(case["tp"]) * int(case["pp"])


def _dtensor_problem(case: Case) -> str:
    if case["pp"] > 1 and (case["data"] > 1 or case["tp"] > 1):
        return "stages go alone"
    if case["pp"] > 1 and case["autocast"]:
        return "stages are not under autocast"
    if (case["data"] > 1) != (case["kind"] is not None):
        return "several data-parallel ranks have a kind, and one has none"
    if case["kind"] == "hsdp" and case["data"] != 4:
        return "HSDP needs two groups of two"
    if case["sp"] and case["tp"] == 1:
        return "sequence parallelism is over tensor-parallel ranks"
    if case["kind"] == "ddp" and case["tp"] > 1:
        return "DistributedDataParallel is not put over DTensors"
    if case["microbatches"] > 1 and case["data"] > 1:
        return "ranks would cut other samples into micro-batches than the reference"
    if case["autocast"] and (case["precision"] != "f32" or case["tp"] > 1):
        return "autocast is for F32 parameters; under it styles mix types"
    return ""


def _dtensor_candidate(case: Case) -> str:
    kind = f"--{case['kind']} " if case["kind"] else ""
    stages = "--pp " if case["pp"] > 1 else ""
    return kind + stages + _flags({**case, "tp": case["tp"] if case["tp"] > 1 else None}, "tp", "sp")


DTENSOR = Program(
    ROOT / "examples" / "dtensor" / "train.py",
    {
        "precision": ("f32", "bf16"),
        "autocast": (False, True),
        "sp": (False, True),
        "kind": (None, "ddp", "fsdp", "hsdp"),
        "data": (1, 2, 4),
        "tp": (1, 2, 4),
        "pp": (1, 2, 4),
        "microbatches": (1, 2),
        "steps": (1, 2),
    },
    ("autocast", "pp", "microbatches"),
    _dtensor_ranks,
    _dtensor_problem,
    lambda case: _flags(case, "precision", "seed", "autocast", "steps"),
    lambda case: _dtensor_candidate(case) + (f" --microbatches {case['microbatches']}" if case["pp"] == 1 else ""),
    lambda case: f"--microbatches {4 if case['pp'] > 1 else case['microbatches']}",
)


# --- examples/megatron_core --------------------------------------------------------------------------


def _megatron_ranks(case: Case) -> int:
    return int(case["tp"]) * int(case["pp"]) * int(case["data"])


def _megatron_problem(case: Case) -> str:
    return _megatron_layout_problem(case) or _megatron_model_problem(case) or _megatron_expert_problem(case)


def _megatron_layout_problem(case: Case) -> str:
    microbatches = case["global-batch"] // (case["micro-batch"] * case["data"])
    if case["global-batch"] % (case["micro-batch"] * case["data"]) or microbatches < 1:
        return "micro-batches of data-parallel ranks are equally many"
    if case["sp"] and case["tp"] == 1:
        return "sequence parallelism is over tensor-parallel ranks"
    if case["vpp"] > 1 and (case["pp"] == 1 or microbatches % case["pp"]):
        return "virtual stages need stages, and as many micro-batches as these or a multiple"
    if case["layers"] % (case["pp"] * case["vpp"]):
        return "stages have equally many layers"
    if case["overlap"] and not case["distributed-optimizer"]:
        return "what overlaps is the distributed optimizer's"
    return ""


def _megatron_model_problem(case: Case) -> str:
    groups = case["groups"] or case["heads"]
    if case["heads"] % groups or groups % case["tp"]:
        return "heads are divided by groups, and these by ranks"
    if case["recompute"] == "selective" and case["qk-norm"]:
        return "not tried"
    return ""


def _megatron_expert_problem(case: Case) -> str:
    if not case["experts"]:
        features = ("aux-loss", "z-loss", "shared-expert")
        return "experts' options need experts" if case["ep"] > 1 or any(case[name] for name in features) else ""
    if case["ep"] > case["data"]:
        return "experts are divided among data-parallel ranks"
    if case["tp"] > 1 and not case["sp"]:
        return "experts under tensor parallelism need sequence parallelism"
    if case["dispatcher"] == "allgather" and case["shared-expert"]:
        return "not tried"
    return ""


MEGATRON = Program(
    ROOT / "examples" / "megatron_core" / "train.py",
    {
        "precision": ("f32", "bf16"),
        "overlap": (False, True),
        "distributed-optimizer": (False, True),
        "recompute": (None, "full", "block", "selective"),
        "per-token-loss": (False, True),
        "untied": (False, True),
        "swiglu": (False, True),
        "rms-norm": (False, True),
        "qk-norm": (False, True),
        "dispatcher": ("alltoall", "allgather"),
        "aux-loss": (0, 0.01),
        "z-loss": (0, 0.001),
        "shared-expert": (False, True),
        "ep": (1, 2),
        "experts": (0, 4),
        "sp": (False, True),
        "vpp": (1, 2),
        "pp": (1, 2),
        "data": (1, 2, 4),
        "tp": (1, 2, 4),
        "layers": (2, 4),
        "hidden": (64, 32),
        "heads": (4, 8),
        "groups": (None, 2, 4),
        "sequence": (16, 32),
        "micro-batch": (1, 2),
        "global-batch": (4, 8),
        "steps": (1, 2),
    },
    ("overlap", "recompute", "per-token-loss", "qk-norm", "dispatcher", "aux-loss", "z-loss", "shared-expert",
     "ep", "experts", "vpp", "groups", "steps"),
    _megatron_ranks,
    _megatron_problem,
    lambda case: _flags(
        {**case, "experts": case["experts"] or None, "aux-loss": case["aux-loss"] or None, "z-loss": case["z-loss"] or None},
        "precision", "seed", "per-token-loss", "untied", "swiglu", "rms-norm", "qk-norm", "experts", "aux-loss", "z-loss",
        "shared-expert", "layers", "hidden", "heads", "groups", "sequence", "micro-batch", "global-batch", "steps",
    ),
    lambda case: _flags(
        {**case, **{name: case[name] if case[name] > 1 else None for name in ("tp", "pp", "vpp", "ep")},
         "dispatcher": case["dispatcher"] if case["experts"] else None},
        "tp", "sp", "pp", "vpp", "ep", "dispatcher", "distributed-optimizer", "overlap", "recompute",
    ),
    needs="megatron.core",
)  # fmt: skip

PROGRAMS = {"dtensor": DTENSOR, "megatron-core": MEGATRON}
