"""`attach` starts tracing a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from .base import lightning
from .base.optimizers import optimizers_in
from .base.precisions import dtype_of, mismatch, precision_named
from .base.refusals import refuse_part_of_a_job
from .base.values import PRECISIONS
from .tracer import Tracer

_session: Any = None  # reads TTRACE_* once
_own_precision: str | None = None  # that the program asked for
_attached = False


def is_attached() -> bool:
    """Whether this process has called `attach`."""
    return _attached


def _remember_that_it_is_attached() -> None:
    global _attached
    _attached = True


def own_precision() -> str | None:
    """What the program has asked `precision` for."""
    return _own_precision


def asked_precision() -> str:
    """What this pass asks the program to compute in. Empty where it may choose."""
    return _the_session().precision("")


def _the_session() -> Any:
    global _session
    if _session is None:
        _session = torch.classes.ttrace.Session()
    return _session


def precision(own: str | torch.dtype) -> str:
    """The precision to compute in: `own`, unless ``ttrace check --golden`` or ``--precision`` asks for
    another. One of "f64", "f32", "bf16", "f16", "fp8" and "fp8_f32" (FP8 operands, everything else F32).

    Args:
        own: one of these names, a usual spelling ("bfloat16", "fp32"), or a type of torch. It is what the
            parameters are kept in: "f32" for a program under autocast.

    Raises:
        ValueError: `own` is none of these; the message lists them.
    """
    global _own_precision
    _own_precision = precision_named(own)
    return _the_session().precision(_own_precision)


def dtype(own: str | torch.dtype) -> torch.dtype:
    """The type to make parameters in: `precision` as a type of torch. Raises ValueError as it does."""
    return dtype_of(precision(own))


def attach(
    model: Any,
    optimizer: Any = None,
    *,
    annotations: str | Path | None = None,
    placements: str = "derived",
    untraced: Sequence[str] = (),
    describe: Mapping[str, Any] | None = None,
    steps: str = "program",
    copies: Mapping[str, Any] | None = None,
    **options: Any,
) -> Tracer:
    """Starts tracing a model. Call it once, after the model and the optimizer are built.

    Args:
        model: a module, the list of chunks or pipeline stages of this rank, a pipeline's schedule, or an engine of
            DeepSpeed. Megatron-core models, DTensor and FSDP2, FSDP1, Megatron-FSDP, DDP, torch.distributed.pipelining,
            modules of Lightning and plain ones are recognised without being named.
        optimizer: the object that updates the parameters, a list of them, or an object that holds them;
            without it neither main gradients nor updates are traced.
        annotations: a file that says where tensors lie whose placement cannot be derived
            (docs/trace_format.md); ``ttrace infer`` writes one.
        placements: "derived" derives them from the model. With "none", every tensor that the file does not
            place is recorded as whole on every rank, and ``ttrace infer`` finds out where it lies.
        steps: "program": the program wraps every iteration in `Tracer.step`. With "optimizer" it does not need
            to: a step ends with the optimizer's, however many micro-batches were accumulated for it, and the
            next one begins. For loops that are not the program's own.
        copies: models, or dictionaries of tensors by parameters' names, that the program keeps as copies of this
            one, such as averages: `{"ema": ema_model}`. They are compared as every step leaves them.
        untraced: regular expressions of ids that are left out, and that the other run may have: what cannot
            be compared, such as rows that a router has sorted by expert.
        describe: facts that must be equal in both runs for a comparison to make sense (data, seed, sizes).
        options: depend on the kind of program; see the modules of `ttrace.programs`.

    Returns:
        The tracer, inert unless ``ttrace check`` started this process.

    Raises:
        RuntimeError: a variable TTRACE_* or a placement is wrong, or this is one of several processes without
            torch.distributed.
        TypeError: no kind of program recognises the model, or an option is unknown; or steps shall follow an
            optimizer that is none of torch; or it is a module of Lightning that its Trainer has not yet set up.
        ValueError: `placements` or `steps` has a value that is not listed here, or one of `copies` has none of the
            parameters.
    """
    _remember_that_it_is_attached()
    if placements not in ("derived", "none"):
        raise ValueError(f'placements is "{placements}"; it must be "derived" or "none"')
    if steps not in ("program", "optimizer"):
        raise ValueError(f'steps is "{steps}"; it must be "program" or "optimizer"')
    session = _the_session()
    if not session.active():
        return Tracer(session, None)
    from .programs import program_of, steps_of_optimizer  # late: untraced runs do not need what these load

    program = program_of(lightning.as_trained(model, optimizer, steps), optimizer, dict(describe or {}), options)
    refuse_part_of_a_job(program.layout)
    left_out = [*untraced, *(steps_of_optimizer.AFTER_THE_STEP if steps == "optimizer" else ())]
    tracer = Tracer(session, program, annotations, placements, left_out, _precision_note(program), copies)
    return _following(tracer, optimizer) if steps == "optimizer" else tracer


def _following(tracer: Tracer, optimizer: Any) -> Tracer:
    from .programs.steps_of_optimizer import LEFT_OUT

    tracer.not_seen("state", LEFT_OUT)
    tracer.follow(*optimizers_in(optimizer)[-1:] or [optimizer])
    return tracer


def _precision_note(program: Any) -> str:
    """What to write, where the program asked for another precision than that of its parameters; else nothing.
    Raises RuntimeError where the pass asks for a precision that the program then does not reach."""
    if _own_precision is None:
        return ""
    declared = program.description().precision
    asked = asked_precision()
    plain = _own_precision in PRECISIONS.values() and declared in PRECISIONS.values()
    if not plain or declared == (asked or _own_precision):
        return ""
    if asked and declared != _own_precision:
        raise RuntimeError(
            f"this pass asks for {asked}, which this program does not reach: {mismatch(_own_precision, declared)}"
        )
    return "" if asked else mismatch(_own_precision, declared)
