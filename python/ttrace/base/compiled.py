"""Modules that a compiler runs as one region: TTrace puts no hooks into them and records nothing inside.

Hooks inside would change the region, and a traced step has to run the kernels that an untraced one runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from torch import nn

from .calls import is_compiled_in_place
from .values import ROOT

# Kinds of tensors that belong to calls of modules, as ids name them.
_OF_CALLS = "(?:(?:grad_)?(?:input|output)|routing|draw|scale|amax_history|operand)"
_SHOWN = 3


def is_wrapper(module: nn.Module) -> bool:
    """Whether torch.compile has wrapped it; FSDP2 derives a class of its own from the wrapper's."""
    return any(cls.__name__ == "OptimizedModule" for cls in type(module).__mro__)


def is_compiled(module: nn.Module) -> bool:
    """Whether its call runs as a compiled region. torch.compiler.disable makes a wrapper that does not."""
    if is_compiled_in_place(module):
        return True
    return is_wrapper(module) and type(module.dynamo_ctx).__name__ != "DisableContext"


def original(module: nn.Module) -> nn.Module:
    """The module that the program wrote, without the wrapper of torch.compile."""
    while is_wrapper(module):
        module = module._orig_mod
    return module


def hides_modules(module: nn.Module) -> bool:
    """Whether a compiled region has modules inside."""
    return is_compiled(module) and any(True for _ in original(module).children())


def hidden_ids(paths: Sequence[str], is_one_of_stages: bool) -> str:
    """A regular expression of the ids that belong to modules inside of the compiled ones at `paths`.

    One rank declares for all: where others have further stages, all layers count as compiled like its own.
    """
    if ROOT in paths:
        return rf"/{_OF_CALLS}/(?!{ROOT}/)"
    names = [re.escape(path) for path in paths]
    if is_one_of_stages:
        names = [re.sub(r"\d+", r"\\d+", name) for name in names]
    return rf"/{_OF_CALLS}/(?:{'|'.join(dict.fromkeys(names))})\."


def patterns(paths: Sequence[str], is_one_of_stages: bool) -> str:
    """Of a role that these modules have, with all that is in them; see hidden_ids() for stages."""
    if ROOT in paths:
        return "*"
    names = [re.sub(r"\d+", "*", path) if is_one_of_stages else path for path in paths]
    return " ".join(f"{name} {name}.*" for name in dict.fromkeys(names))


def sentence(paths: Sequence[str]) -> str:
    """What a report says of them."""
    shown = _listed(paths)
    are, they = ("is", "it takes and returns") if len(paths) == 1 else ("are", "they take and return")
    return f"{shown} {are} compiled: what {they} is recorded, what lies inside is not"


def sentence_on_choices(paths: Sequence[str]) -> str:
    """What a report says of those among them that choose experts."""
    chooses = "chooses" if len(paths) == 1 else "choose"
    return (
        f"{_listed(paths)} {chooses} experts inside of compiled code: TTrace does not record these "
        "choices, and judges the tensors that depend on them by the noise bound only, not operator by "
        "operator; without torch.compile, it checks the run in full"
    )


def _listed(paths: Sequence[str]) -> str:
    more = len(paths) - _SHOWN
    return ", ".join(paths[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
