"""Modules of Lightning, whose Trainer or Fabric puts them into wrappers of its own."""

from __future__ import annotations

import os
from typing import Any

import torch


def as_trained(model: Any, optimizer: Any, steps: str) -> Any:
    """The module whose calls train `model`: the wrapper for data parallelism that the module's Trainer has made, or what
    is behind the module that Fabric returned. Of all else `model` itself. `optimizer`, `steps`: as `attach` gets them.

    Raises TypeError for a module whose Trainer has not yet made what this attach would have to know.
    """
    if _is_of(model, "_FabricModule"):
        return model._forward_module
    if not _is_of(model, "LightningModule"):
        return model
    wrapper = _in_its_wrapper(model)
    is_set_up = wrapper is not model or bool(getattr(_strategy(model), "optimizers", ()))
    lacks_optimizer = optimizer is None and steps == "optimizer"
    if is_set_up or not (lacks_optimizer or _lacks_ranks(model)):
        return wrapper
    raise TypeError(
        f"ttrace.attach got the LightningModule {type(model).__name__} before its Trainer has set it up, so that its "
        "optimizer and its wrapper do not exist yet; call ttrace.attach_trainer(trainer) before trainer.fit()"
    )


def _is_of(model: Any, name: str) -> bool:
    return any(cls.__name__ == name and "lightning" in cls.__module__ for cls in type(model).__mro__)


def _strategy(module: Any) -> Any:
    return getattr(getattr(module, "_trainer", None), "strategy", None)


def _in_its_wrapper(module: Any) -> Any:
    wrapper = getattr(_strategy(module), "model", None)
    return wrapper if isinstance(wrapper, torch.nn.Module) else module


def _lacks_ranks(module: Any) -> bool:
    """Whether the Trainer will run it on several ranks, or a launcher has started several processes that do not yet know
    of each other."""
    if (strategy := _strategy(module)) is not None:
        return getattr(strategy, "world_size", 1) > 1
    distributed = torch.distributed
    is_alone = not (distributed.is_available() and distributed.is_initialized())
    return is_alone and "LOCAL_RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1"
