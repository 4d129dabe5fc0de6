"""Callbacks for Trainers, whose loop is their own: where a program, or a file that configures it, can only name a class.

    Trainer(..., callbacks=[ttrace.callbacks.TransformersCallback()])    # of transformers
    Trainer(..., callbacks=[ttrace.callbacks.LightningCallback()])       # of Lightning, under either of its names

Both take the options of `ttrace.attach`. The model and the optimizer are those that the trainer has when it begins, in
their wrappers. A step is one of the optimizer, with all micro-batches that are accumulated for it. Neither needs the
other's framework.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from .attach import attach


PACKAGES_OF_LIGHTNING = ("lightning.pytorch", "pytorch_lightning")


class _Steps:
    """The step that runs, if one does."""

    def __init__(self, **options: Any):
        self._options = options
        self._step: AbstractContextManager | None = None

    def _attach(self, model: Any, optimizer: Any) -> None:
        self._tracer = attach(model, optimizer, **self._options)

    def _begin(self, number: int) -> None:
        if self._step is None:
            self._step = self._tracer.step(number)
            self._step.__enter__()

    def _end(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)


class TransformersCallback(_Steps):
    """Traces the Trainer of transformers whose callback it is. A transformers.TrainerCallback by its methods: ttrace
    imports no transformers."""

    def on_train_begin(self, *unused: Any, **unused_too: Any) -> None:
        trainer = self._trainer()
        self._attach(trainer.model_wrapped, trainer.optimizer)

    def on_step_begin(self, args: Any, state: Any, *unused: Any, **unused_too: Any) -> None:
        self._begin(state.global_step)

    def on_step_end(self, *unused: Any, **unused_too: Any) -> None:
        self._end()

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *unused, **unused_too: None

    def _trainer(self) -> Any:
        """The trainer that calls us. It passes callbacks the model without its wrappers, and not itself."""
        frame = sys._getframe(1)
        while frame is not None:
            caller = frame.f_locals.get("self")
            if any(own is self for own in getattr(getattr(caller, "callback_handler", None), "callbacks", ())):
                return caller
            frame = frame.f_back
        raise RuntimeError(
            "ttrace.callbacks.TransformersCallback was called by something else than the Trainer of transformers that it was "
            "given to; call ttrace.attach with the model and its optimizer"
        )


class _OfLightning(_Steps):
    """The methods of LightningCallback. A step ends with the batch in which an optimizer has stepped, when the
    schedulers of learning rates have, too."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        del pl_module
        self._attach(trainer.strategy.model, trainer.optimizers)
        self._number = self._updates = trainer.global_step

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        del trainer, pl_module, batch, batch_idx
        self._begin(self._number)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        del pl_module, outputs, batch, batch_idx
        if trainer.global_step != self._updates:
            self._updates = trainer.global_step
            self._number += 1
            self._end()


@functools.cache
def _lightning_callback() -> type:
    """Of the package that the program has imported, for Lightning has two names, whose callbacks are different classes."""
    used = [name for name in PACKAGES_OF_LIGHTNING if sys.modules.get(name)]
    used = used or [name for name in PACKAGES_OF_LIGHTNING if importlib.util.find_spec(name.partition(".")[0])][:1]
    if not used:
        raise ModuleNotFoundError(
            "ttrace.callbacks.LightningCallback needs lightning or pytorch_lightning, and neither is installed"
        )
    bases = (_OfLightning, *(importlib.import_module(f"{name}.callbacks").Callback for name in used))
    return type("LightningCallback", bases, {"__module__": __name__, "__doc__": "Traces the Trainer whose callback it is."})


def __getattr__(name: str) -> Any:
    if name == "LightningCallback":
        return _lightning_callback()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
