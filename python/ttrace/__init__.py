"""TTrace: finds the first operator at which a parallel training step differs from a trusted one.

    import ttrace

    tracer = ttrace.attach(model, optimizer=optimizer)
    for iteration in range(iterations):
        with tracer.step(iteration):
            ...  # forward, backward, optimizer.step()

Without the variables that ``ttrace check`` sets nothing happens at all: no hook, no copy, no file.
"""

from __future__ import annotations

from . import _keeper, _library

_library.load()

from .attach import attach, dtype, precision  # noqa: E402  needs the library
from .base.layout import Axis, Layout  # noqa: E402
from .base.program import Program  # noqa: E402
from .base.recorder import Recorder  # noqa: E402
from .base.regions import record, region  # noqa: E402
from .base.simulated import simulated  # noqa: E402
from .base.values import (  # noqa: E402
    UNTRACED,
    Description,
    Dims,
    Gradient,
    OptimizerState,
    Parameter,
    Rows,
    Site,
    Untraced,
)
from .reading import (  # noqa: E402
    Box,
    Check,
    FirstDivergence,
    Part,
    Record,
    Report,
    Trace,
    TraceError,
    Verdict,
    check,
    diff,
    open,
)
from .tracer import TracedStep, Tracer  # noqa: E402
from .trainer import attach_trainer  # noqa: E402

__all__ = [
    "UNTRACED",
    "Axis",
    "Box",
    "Check",
    "Description",
    "Dims",
    "FirstDivergence",
    "Gradient",
    "Layout",
    "OptimizerState",
    "Parameter",
    "Part",
    "Program",
    "Record",
    "Recorder",
    "Report",
    "Rows",
    "Site",
    "Trace",
    "TraceError",
    "TracedStep",
    "Tracer",
    "Untraced",
    "Verdict",
    "attach",
    "attach_trainer",
    "check",
    "diff",
    "dtype",
    "open",
    "precision",
    "record",
    "region",
    "simulated",
]

_keeper.keep()
