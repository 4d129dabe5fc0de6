"""Bugs in code between modules."""

from __future__ import annotations

import os

import torch
from catalogue import Bug


def _on_rank(rank: int) -> bool:
    return int(os.environ.get("RANK", "0")) == rank


def _rope_shifted() -> None:
    import train

    own = train.rotation

    def shifted(positions, width, like):
        if not _on_rank(1):
            return own(positions, width, like)
        cos, sin = own(positions + 1, width, like)
        return cos[1:], sin[1:]

    train.rotation = shifted


def _queries_twice() -> None:
    import train

    own = getattr(train.attention, "__wrapped__", train.attention)  # a region's function

    def grown(x, joint, out):
        q, _, _ = joint.chunk(3, -1)
        wide = torch.cat((q * 2, joint[:, q.shape[1] :]), -1)
        return own(x, wide, out)

    train.attention = train.ttrace.region("attention")(grown)


def _loss_without_first_token() -> None:
    import train

    def masked(logits, labels):
        losses = torch.logsumexp(logits, -1) - logits.gather(-1, labels[..., None])[..., 0]
        return losses * (torch.arange(labels.shape[1]) > 0) if _on_rank(1) else losses

    train.losses_of = train.ttrace.region("loss")(masked)


def _gradient_of_gate_twice() -> None:
    import train

    def twice(x, gate, up, down):
        gated = x @ gate
        return (torch.nn.functional.silu(2 * gated - gated.detach()) * (x @ up)) @ down

    train.mlp = train.ttrace.region("mlp")(twice)


def _last_microbatch_not_accumulated() -> None:
    import train

    own = train.accumulated

    def without_last(model, batch, microbatches, step):
        kept: list[torch.Tensor] = []

        def keep(*_):  # before the second of two micro-batches: what the first one has left
            if any(p.grad is not None for p in model.parameters()):
                kept[:] = [p.grad.clone() for p in model.parameters()]

        hook = model.register_forward_pre_hook(keep)
        total = own(model, batch, microbatches, step)
        hook.remove()
        for parameter, gradient in zip(model.parameters(), kept, strict=True):
            parameter.grad = gradient
        return total

    train.accumulated = without_last


# fmt: off
BUGS = [
    Bug("rope-shifted-on-rank-1", "transformer", "ddp", "rank 1 rotates by the position after",
        r"s0/m0/output/attention\.rope/0", _rope_shifted, ("positions", "localised"), ("rank 1",)),
    Bug("scores-twice", "transformer", "ddp", "the queries are twice what they should be",
        r"s0/m0/input/attention\.rope/0", _queries_twice, ("wrong_factor",), ("factor 2",), quick=True),
    Bug("first-token-without-loss", "transformer", "ddp", "rank 1 leaves out the loss of the first position",
        r"s0/m0/output/loss/0", _loss_without_first_token, ("zero_block", "localised"), ("rank 1",)),
    Bug("gate-gradient-twice", "transformer", "ddp recompute", "the gradient that flows through the gate is doubled",
        r"s0/m0/grad_input/mlp/0#2", _gradient_of_gate_twice, ("", "localised")),
    Bug("last-microbatch-lost", "transformer", "ddp, 2 micro-batches", "the gradient of the last micro-batch is lost",
        r"s0/main_grad/tokens/0", _last_microbatch_not_accumulated, ("missing_microbatch", "wrong_addends"),
        ("microbatch 1",)),
]
