"""Traces Trainers, whose loop is their own: those of transformers and of Lightning."""

from __future__ import annotations

from typing import Any

from . import callbacks


def attach_trainer(trainer: Any, **options: Any) -> None:
    """Traces every step that the trainer takes. Call it once, before ``trainer.train()`` or ``trainer.fit()``.

    It gives the trainer a callback of `ttrace.callbacks`, unless it has one.

    Args:
        trainer: of transformers or of Lightning, or what is derived from one of them.
        options: of `attach`.

    Raises:
        TypeError: it is neither.
    """
    if _is_of_lightning(trainer):
        if not any(isinstance(own, callbacks.LightningCallback) for own in trainer.callbacks):
            trainer.callbacks.append(callbacks.LightningCallback(**options))
    elif hasattr(trainer, "add_callback"):
        if not any(isinstance(own, callbacks.TransformersCallback) for own in trainer.callback_handler.callbacks):
            trainer.add_callback(callbacks.TransformersCallback(**options))
    else:
        raise TypeError(
            f"ttrace.attach_trainer got a {type(trainer).__name__}; pass a Trainer of transformers or of Lightning, or call "
            "ttrace.attach with the model and its optimizer"
        )


def _is_of_lightning(trainer: Any) -> bool:
    packages = tuple(f"{package}.trainer" for package in callbacks.PACKAGES_OF_LIGHTNING)
    return any(cls.__name__ == "Trainer" and cls.__module__.startswith(packages) for cls in type(trainer).__mro__)
