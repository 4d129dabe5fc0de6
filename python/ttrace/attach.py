"""`attach` starts tracing a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from .base.optimizers import optimizers_in
from .tracer import Tracer

_session: Any = None  # reads TTRACE_* once


def _the_session() -> Any:
    global _session
    if _session is None:
        _session = torch.classes.ttrace.Session()
    return _session


def precision(own: str) -> str:
    """The precision to compute in: `own`, unless ``ttrace check --golden`` or ``--precision`` asks for
    another. One of "f64", "f32", "bf16", "f16", "fp8" and "fp8_f32" (FP8 operands, everything else F32)."""
    return _the_session().precision(own)


def attach(
    model: Any,
    optimizer: Any = None,
    *,
    annotations: str | Path | None = None,
    placements: str = "derived",
    untraced: Sequence[str] = (),
    describe: Mapping[str, Any] | None = None,
    steps: str = "program",
    **options: Any,
) -> Tracer:
    """Starts tracing a model. Call it once, after the model and the optimizer are built.

    Args:
        model: a module, the list of chunks or pipeline stages of this rank, or a pipeline's schedule.
            Megatron-core models, DTensor and FSDP2, DDP, torch.distributed.pipelining and plain modules are
            recognised without being named.
        optimizer: the object that updates the parameters, a list of them, or an object that holds them;
            without it neither main gradients nor updates are traced.
        annotations: a file that says where tensors lie whose placement cannot be derived
            (docs/trace_format.md); ``ttrace infer`` writes one.
        placements: "derived" derives them from the model. With "none", every tensor that the file does not
            place is recorded as whole on every rank, and ``ttrace infer`` finds out where it lies.
        steps: "program": the program wraps every iteration in `Tracer.step`. With "optimizer" it does not need
            to: a step ends with the optimizer's, however many micro-batches were accumulated for it, and the
            next one begins. For loops that are not the program's own.
        untraced: regular expressions of ids that are left out, and that the other run may have: what cannot
            be compared, such as rows that a router has sorted by expert.
        describe: facts that must be equal in both runs for a comparison to make sense (data, seed, sizes).
        options: depend on the kind of program; see the modules of `ttrace.programs`.

    Returns:
        The tracer, inert unless ``ttrace check`` started this process.

    Raises:
        RuntimeError: a variable TTRACE_* or a placement is wrong; the message names it.
        TypeError: no kind of program recognises the model, or an option is unknown; or steps shall follow an
            optimizer that is none of torch.
        ValueError: `placements` or `steps` has a value that is not listed here.
    """
    if placements not in ("derived", "none"):
        raise ValueError(f'placements is "{placements}"; it must be "derived" or "none"')
    if steps not in ("program", "optimizer"):
        raise ValueError(f'steps is "{steps}"; it must be "program" or "optimizer"')
    session = _the_session()
    if not session.active():
        return Tracer(session, None)
    from .programs import (
        program_of,
    )  # a late import: untraced runs do not need the parts of torch that it loads

    program = program_of(model, optimizer, dict(describe or {}), options)
    tracer = Tracer(session, program, annotations, placements, untraced)
    if steps == "optimizer":
        tracer.follow(*optimizers_in(optimizer)[-1:] or [optimizer])
    return tracer
