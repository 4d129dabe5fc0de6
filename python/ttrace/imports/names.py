"""From foreign names to the kinds and paths of a trace. docs/imports.md has the rules."""

from __future__ import annotations

import re

from .foreign import Name

# Kinds of the whole step; the others belong to a micro-batch.
_OF_STEP = (
    "param", "main_grad", "master", "param_next", "exp_avg", "exp_avg_sq", "state", "copy", "buffer", "start",
    "state_before", "scalar",
)  # fmt: skip
KINDS = (
    *_OF_STEP, "data", "input", "output", "grad_output", "grad_input", "param_grad", "loss", "routing",
    "draw", "scale", "amax_history", "operand", "sent", "received",
)  # fmt: skip

_ID = re.compile(
    r"s(?P<step>[0-9]+)(?:/m(?P<microbatch>[0-9]+))?/(?P<kind>[a-z_]+)/(?P<path>[A-Za-z0-9_.-]+)/(?P<slot>[0-9]+)"
    r"(?:#(?P<call>[0-9]+))?(?P<recompute>~?)"
)
# What an optimizer keeps of a parameter, as torch's, Megatron-core's and their relatives call it.
_STATES = {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq", "fp32_param": "master"}
_CONTAINERS = ("app", "model", "module", "optim", "optimizer", "state", "state_dict")
_OF_OPTIMIZER = re.compile(r"^(?:app\.)?(?:optim|optimizer)\.(?:state\.)?|^state\.")


def id_of(step: int, name: Name) -> str:
    """The id in the grammar of docs/trace_format.md."""
    microbatch = "" if name.kind in _OF_STEP else f"/m{name.microbatch}"
    call = f"#{name.call}" if name.call else ""
    again = "~" if name.recompute else ""
    return f"s{step}{microbatch}/{name.kind}/{name.path}/{name.slot}{call}{again}"


def own_id(text: str) -> Name | None:
    """The name of a tensor that is called by an id of TTrace; the step of that id does not count."""
    found = _ID.fullmatch(text)
    if not found or found["kind"] not in KINDS:
        return None
    numbers = {key: int(found[key] or 0) for key in ("slot", "call", "microbatch")}
    return Name(found["kind"], canonical(found["path"]), recompute=bool(found["recompute"]), **numbers)


def canonical(text: str) -> str:
    """A path of a trace: `/` becomes a dot, other letters that a path cannot have become `_`."""
    parts = re.sub(r"[^A-Za-z0-9_.-]", "_", text.replace("/", ".")).split(".")
    return ".".join(part for part in parts if part) or "unnamed"


def of_checkpoint(parts: tuple[str, ...], kind: str, is_number: bool) -> Name:
    """The name of a tensor in a checkpoint, whose dictionaries nest as `parts` say.

    Dictionaries that only hold others (`model`, `optim`, `state`) are no part of the path. `kind` is that of
    what is no optimizer state, `is_number` whether it has no dimensions.
    """
    inner = list(parts)
    while len(inner) > 1 and inner[0] in _CONTAINERS:
        del inner[0]
    path = _OF_OPTIMIZER.sub("", ".".join(inner)) or ".".join(inner)
    words = path.split(".")
    states = [word for word in words if word in _STATES]
    if len(states) == 1 and len(words) > 1:
        words.remove(states[0])
        return Name(_STATES[states[0]], canonical(".".join(words)))
    return Name("scalar" if is_number and kind == "param" else kind, canonical(path))
