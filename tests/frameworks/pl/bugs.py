"""Silent bugs of programs that Lightning's Trainer trains; `what` names the issue."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from catalogue import Bug


def _script() -> Any:
    """The module of the script that runs, whose names are those that it imported."""
    return sys.modules[Path(sys.argv[0]).stem]


def _wrap(owner: Any, name: str, make: Callable[[Callable], Callable]) -> None:
    """Puts what `make` makes of the function in its place."""
    own = getattr(owner, name)
    setattr(owner, name, functools.wraps(own)(make(own)))


def _backward_of_the_loss() -> None:
    from lightning.pytorch import LightningModule

    LightningModule.manual_backward = lambda self, loss: loss.backward()


def _never_synchronised() -> None:
    from lightning.pytorch.core.optimizer import LightningOptimizer

    _wrap(LightningOptimizer, "toggle_model", lambda own: lambda self, sync_grad=True: own(self, sync_grad=False))


def _loss_is_divided_by(count: int) -> None:
    _wrap(_script().Task, "compute_loss", lambda own: lambda self, text: own(self, text) / count)


def _every_rank_reads_all_samples() -> None:
    from lightning.pytorch import Trainer

    def without_sampler(own):
        return lambda self, **options: own(self, **{**options, "use_distributed_sampler": False})

    _wrap(Trainer, "__init__", without_sampler)


def _clips_every_batch() -> None:
    def clipping(own):
        def backward(self, loss):
            own(self, loss)
            self.clip_gradients(self.optimizers(), self.args.clip, "norm")

        return backward

    _wrap(_script().Task, "manual_backward", clipping)


def _clipping_is_overridden() -> None:
    """The module's own way of clipping forgets to clip."""
    _script().Task.configure_gradient_clipping = lambda self, optimizer, *norm, **options: None


def _schedules_every_batch() -> None:
    def scheduling(own):
        def training_step(self, batch, index):
            own(self, batch, index)
            if (index + 1) % self.args.accumulate:
                self.lr_schedulers().step()

        return training_step

    _wrap(_script().ManualTask, "training_step", scheduling)


def _zeroes_every_batch() -> None:
    def zeroing(own):
        def training_step(self, batch, index):
            self.optimizers().zero_grad()
            own(self, batch, index)

        return training_step

    _wrap(_script().ManualTask, "training_step", zeroing)


def _updates_before_the_last_batch_is_added() -> None:
    """Gradients are averaged over the ranks with the first batch, and not with the second."""
    from lightning.pytorch.core.optimizer import LightningOptimizer

    _wrap(LightningOptimizer, "toggle_model", lambda own: lambda self, sync_grad=True: own(self, sync_grad=not sync_grad))


EMBEDDING = r"s0/main_grad/tokens\.weight/0"
UNREDUCED = ("missing_reduction", "wrong_addends", "replicas_diverge")

BUGS = [
    Bug(
        "loss-backward", "manual", "ddp",
        "loss.backward() in place of self.manual_backward(loss): DDP reduces nothing (Lightning-AI/pytorch-lightning#9237)",
        EMBEDDING, _backward_of_the_loss, UNREDUCED, quick=True,
    ),
    Bug(
        "loss-backward-mixed", "manual mixed", "ddp",
        "loss.backward() in place of self.manual_backward(loss), in BF16-mixed (Lightning-AI/pytorch-lightning#9237)",
        EMBEDDING, _backward_of_the_loss, UNREDUCED,
    ),
    Bug(
        "never-synchronised", "manual accumulating", "ddp",
        "toggle_model(sync_grad=False) around the last batch of a step, too",
        EMBEDDING, _never_synchronised, UNREDUCED,
    ),
    Bug(
        "synchronised-with-the-first", "manual accumulating", "ddp with own samples",
        "sync_grad is true for the first batch of a step and false for the last, whose gradients stay local",
        EMBEDDING, _updates_before_the_last_batch_is_added, ("wrong_addends", "missing_reduction", "replicas_diverge"),
    ),
    Bug(
        "divided-by-ranks-twice", "automatic", "ddp",
        "the training step divides its loss by the number of ranks, and DDP takes the mean, too",
        r"s0/m0/grad_output/(model|head)/0", lambda: _loss_is_divided_by(2), ("wrong_factor",), ("factor 0.5",),
    ),
    Bug(
        "divided-by-batches-twice", "automatic accumulating", "ddp",
        "the training step divides its loss by accumulate_grad_batches, and Lightning does so, too",
        r"s0/m0/grad_output/(model|head)/0", lambda: _loss_is_divided_by(2), ("wrong_factor",), ("factor 0.5",),
        precision="bf16",
    ),
    Bug(
        "samples-not-dealt", "automatic", "ddp",
        "use_distributed_sampler=False, and a loader that no one divides among the ranks: all read the same samples",
        r"s0/m0/data/tokens/0", _every_rank_reads_all_samples, ("source", "duplicated_block"),
    ),
    Bug(
        "clips-every-batch", "manual accumulating", "ddp with own samples",
        "gradients are clipped after every batch of a step, and not when all of them are added up",
        r"s0/m1/output/tokens/0", _clips_every_batch, ("missing_microbatch", "wrong_addends", "replicas_diverge"),
        redeclared="the first clipping ends what is recorded of gradients and micro-batches, so that the second batch is missing",
    ),
    Bug(
        "clipping-overridden", "automatic accumulating", "ddp",
        "the module overrides configure_gradient_clipping, and does not clip",
        r"s0/(scalar/grad_norm|exp_avg/tokens\.weight)/0", _clipping_is_overridden, ("optimizer", "wrong_factor"),
    ),
    Bug(
        "schedules-every-batch", "manual accumulating", "ddp",
        "the scheduler of the learning rate steps after every batch, and not after the optimizer's steps",
        r"s0/state/tokens\.weight\.lr/0", _schedules_every_batch, ("wrong_factor",), ("factor 0.5",),
        redeclared="the scheduler steps before the optimizer does, so that the rate of this step differs already",
    ),
    Bug(
        "zeroes-every-batch", "manual accumulating", "ddp with own samples",
        "gradients are set to zero before every batch: all but the last batch's are lost",
        EMBEDDING, _zeroes_every_batch, ("missing_microbatch",), ("microbatch 0",),
    ),
]  # fmt: skip
