"""Traces the Trainer of transformers, whose loop is its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from .attach import attach


def attach_trainer(trainer: Any, **options: Any) -> None:
    """Traces every step that the trainer takes. Call it once, before ``trainer.train()``.

    The model and the optimizer are those that the trainer has when it begins, in their wrappers. A step is one
    of the optimizer, with all micro-batches that are accumulated for it.

    Args:
        trainer: a transformers.Trainer, or what is derived from it.
        options: of `attach`.
    """
    trainer.add_callback(_Callback(trainer, options))


class _Callback:
    """What the trainer calls. A transformers.TrainerCallback by its methods: ttrace imports no transformers."""

    def __init__(self, trainer: Any, options: dict[str, Any]):
        self._trainer = trainer
        self._options = options
        self._step: AbstractContextManager | None = None

    def on_train_begin(self, *unused: Any, **unused_too: Any) -> None:
        self._tracer = attach(self._trainer.model_wrapped, self._trainer.optimizer, **self._options)

    def on_step_begin(self, args: Any, state: Any, *unused: Any, **unused_too: Any) -> None:
        self._step = self._tracer.step(state.global_step)
        self._step.__enter__()

    def on_step_end(self, *unused: Any, **unused_too: Any) -> None:
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *unused, **unused_too: None
