"""Traces Trainers, whose loop is their own: those of transformers and of Lightning."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from .attach import attach


def attach_trainer(trainer: Any, **options: Any) -> None:
    """Traces every step that the trainer takes. Call it once, before ``trainer.train()`` or ``trainer.fit()``.

    The model and the optimizer are those that the trainer has when it begins, in their wrappers. A step is one
    of the optimizer, with all micro-batches that are accumulated for it.

    Args:
        trainer: of transformers or of Lightning, or what is derived from one of them.
        options: of `attach`.

    Raises:
        TypeError: it is neither.
    """
    if (callback := _callback_of_lightning(trainer)) is not None:

        class OfLightning(_OfLightning, callback):
            pass

        trainer.callbacks.append(OfLightning(options))
    elif hasattr(trainer, "add_callback"):
        trainer.add_callback(_OfTransformers(trainer, options))
    else:
        raise TypeError(
            f"ttrace.attach_trainer got a {type(trainer).__name__}; pass a Trainer of transformers or of Lightning, or call "
            "ttrace.attach with the model and its optimizer"
        )


class _Steps:
    """The step that runs, if one does."""

    def __init__(self, options: dict[str, Any]):
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


class _OfTransformers(_Steps):
    """What the trainer calls. A transformers.TrainerCallback by its methods: ttrace imports no transformers."""

    def __init__(self, trainer: Any, options: dict[str, Any]):
        super().__init__(options)
        self._trainer = trainer

    def on_train_begin(self, *unused: Any, **unused_too: Any) -> None:
        self._attach(self._trainer.model_wrapped, self._trainer.optimizer)

    def on_step_begin(self, args: Any, state: Any, *unused: Any, **unused_too: Any) -> None:
        self._begin(state.global_step)

    def on_step_end(self, *unused: Any, **unused_too: Any) -> None:
        self._end()

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *unused, **unused_too: None


class _OfLightning(_Steps):
    """The methods of a callback of Lightning. A step ends with the batch in which an optimizer has stepped, when the
    schedulers of learning rates have, too."""

    def on_train_start(self, trainer: Any, module: Any) -> None:
        del module
        self._attach(trainer.strategy.model, trainer.optimizers)
        self._number = self._updates = trainer.global_step

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
        del trainer, module, batch, index
        self._begin(self._number)

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        del module, outputs, batch, index
        if trainer.global_step != self._updates:
            self._updates = trainer.global_step
            self._number += 1
            self._end()


def _callback_of_lightning(trainer: Any) -> type | None:
    """The class of callbacks of the package that the trainer is from, which has two names."""
    for cls in type(trainer).__mro__:
        package = cls.__module__.partition(".trainer.")[0]
        if cls.__name__ == "Trainer" and package in ("lightning.pytorch", "pytorch_lightning"):
            return importlib.import_module(f"{package}.callbacks").Callback
    return None
