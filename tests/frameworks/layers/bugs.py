"""Bugs of layers that divide the ranks in ways of their own: redistribution, reduction and loading."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from catalogue import Bug
from torch.distributed.tensor import DTensor, Replicate


def _in_place_of(name: str, make: Callable) -> None:
    import train

    setattr(train, name, make(getattr(train, name)))


def _is_division(x: torch.Tensor, placements: tuple) -> bool:
    """Of the stream before a narrow layer."""
    return isinstance(x, DTensor) and x.placements == _placements("wide") and placements == _placements("narrow")


def _is_joining(x: torch.Tensor, placements: tuple) -> bool:
    return isinstance(x, DTensor) and x.placements == _placements("narrow") and placements == _placements("wide")


def _placements(strategy: str) -> tuple:
    import train

    return train.STREAM[strategy]


def _joined_in_wrong_order() -> None:
    def make(own):
        def redistributed(x, placements):
            result = own(x, placements)
            return result.roll(result.shape[0] // 2, 0) if _is_joining(x, placements) else result

        return redistributed

    _in_place_of("redistributed", make)


class _OtherHalf(torch.autograd.Function):
    """This rank takes the samples of the other outer rank."""

    @staticmethod
    def forward(ctx, x: DTensor, placements: tuple, both_first: bool) -> DTensor:
        mesh = x.device_mesh
        own = mesh.get_local_rank("outer")
        ctx.before, ctx.halves = x.placements, (own, 0 if both_first else 1 - own)
        part = x.to_local().chunk(2, 0)[ctx.halves[1]].clone()
        return DTensor.from_local(part, mesh, placements, run_check=False)

    @staticmethod
    def backward(ctx, gradient: DTensor):
        return gradient.redistribute(placements=ctx.before), None, None


def _divided(both_first: bool) -> Callable[[], None]:
    def make(own):
        def redistributed(x, placements):
            if _is_division(x, placements):
                return _OtherHalf.apply(x, placements, both_first)
            return own(x, placements)

        return redistributed

    return lambda: _in_place_of("redistributed", make)


class _GradientOfOwnSamples(torch.autograd.Function):
    """Forward as it should be; backward each rank has the gradient of its own samples, and zeros."""

    @staticmethod
    def forward(ctx, x: DTensor, placements: tuple) -> DTensor:
        ctx.before, ctx.after = x.placements, placements
        return x.redistribute(placements=placements)

    @staticmethod
    def backward(ctx, gradient: DTensor):
        local, mesh = gradient.redistribute(placements=ctx.after).to_local(), gradient.device_mesh
        whole = torch.zeros(2 * local.shape[0], *local.shape[1:], dtype=local.dtype)
        whole.chunk(2, 0)[mesh.get_local_rank("outer")].copy_(local)
        return DTensor.from_local(whole, mesh, ctx.before, run_check=False), None


def _division_not_gathered_in_backward() -> None:
    def make(own):
        def redistributed(x, placements):
            return _GradientOfOwnSamples.apply(x, placements) if _is_division(x, placements) else own(x, placements)

        return redistributed

    _in_place_of("redistributed", make)


class _SumOfBothRanks(torch.autograd.Function):
    """Hands x on; backward sums the gradient over the ranks that gathered, as the gather's own backward does."""

    @staticmethod
    def forward(ctx, x: DTensor) -> DTensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient: DTensor):
        total = gradient.to_local().clone()
        dist.all_reduce(total, group=gradient.device_mesh.get_group("outer"))
        return DTensor.from_local(total, gradient.device_mesh, gradient.placements, run_check=False)


def _gathered_twice_in_backward() -> None:
    def make(own):
        def redistributed(x, placements):
            result = own(x, placements)
            return _SumOfBothRanks.apply(result) if _is_joining(x, placements) else result

        return redistributed

    _in_place_of("redistributed", make)


def _with_gradients(change: Callable[[str, DTensor], DTensor]) -> None:
    """Each parameter's gradient goes through `change` (by name) before the others are reduced."""

    def make(own):
        def reduce_gradients(model):
            for name, parameter in model.named_parameters():
                if isinstance(parameter.grad, DTensor):
                    parameter.grad = change(name, parameter.grad)
            own(model)

        return reduce_gradients

    _in_place_of("reduce_gradients", make)


def _as_reduced(gradient: DTensor, local: torch.Tensor) -> DTensor:
    placements = [Replicate() if p.is_partial() else p for p in gradient.placements]
    return DTensor.from_local(local, gradient.device_mesh, placements, run_check=False)


def _reduced_over_inner() -> None:
    """Layer 1 is narrow; its gradients are summed over the ranks among which it is cut."""

    def change(name, gradient):
        if not name.startswith("layers.1."):
            return gradient
        total = gradient.to_local().clone()
        dist.all_reduce(total, group=gradient.device_mesh.get_group("inner"))
        return _as_reduced(gradient, total)

    _with_gradients(change)


def _averaged_over_degree() -> None:
    """The loss is a mean over all samples already."""
    _with_gradients(lambda name, gradient: gradient / 2 if name.startswith("layers.2.") else gradient)


def _norm_gradient_not_reduced() -> None:
    def change(name, gradient):
        kept = name == "layers.2.attention_norm.weight"
        return _as_reduced(gradient, gradient.to_local()) if kept else gradient

    _with_gradients(change)


def _loaded_by_the_wide_map() -> None:
    """A checkpoint of layer 1's mlp.up is read again after the start, by the offsets of a wide layer."""

    def make(own):
        def attach(model, *args, **kwargs):
            tracer = own(model, *args, **kwargs)
            weight = model.layers[1].mlp.up.weight
            whole = weight.detach().full_tensor()
            local = weight._local_tensor
            first = whole.shape[0] // 4 * dist.get_rank()
            rows = (torch.arange(local.shape[0]) + first) % whole.shape[0]
            local.copy_(whole[rows])
            return tracer

        return attach

    import train

    train.ttrace.attach = make(train.ttrace.attach)


LAYOUT = "wide, narrow"
RECORDED_EARLIER = "the norm's output was declared, when inputs that are DTensors were not recorded yet"

# fmt: off
BUGS = [
    Bug("joined-in-wrong-order", "galvatron", LAYOUT, "samples of the outer ranks are joined in the wrong order",
        r"s0/m0/input/layers\.3/0", _joined_in_wrong_order, ("wrong_order", "shifted"),
        redeclared=RECORDED_EARLIER),
    Bug("divided-in-wrong-order", "galvatron", LAYOUT, "an outer rank takes the other one's samples",
        r"s0/m0/input/layers\.1/0", _divided(both_first=False), ("wrong_order", "shifted"),
        redeclared=RECORDED_EARLIER),
    Bug("both-take-the-first-half", "galvatron", LAYOUT, "both outer ranks take the first half of the samples",
        r"s0/m0/input/layers\.1/0", _divided(both_first=True), ("duplicated_block", "wrong_order"),
        precision="bf16", redeclared=RECORDED_EARLIER),
    Bug("reduced-over-the-wrong-ranks", "galvatron", LAYOUT, "a narrow layer's gradients are summed over the inner ranks",
        r"s0/main_grad/layers\.1\.attention_norm\.weight/0", _reduced_over_inner,
        ("missing_reduction", "wrong_addends", "replicas_diverge"), ("axis outer",)),
    Bug("averaged-over-the-degree", "galvatron", LAYOUT, "gradients of a narrow layer are divided by its outer degree",
        r"s0/main_grad/layers\.2\.attention_norm\.weight/0", _averaged_over_degree, ("wrong_factor",), ("factor 0.5",),
        precision="bf16"),
    Bug("gathered-twice-in-backward", "galvatron", LAYOUT, "backward sums the gradient of what was joined over the outer ranks",
        r"s0/m0/grad_output/layers\.2/0", _gathered_twice_in_backward, ("wrong_factor", "repeated_reduction"), quick=True),
    Bug("division-not-gathered", "galvatron", LAYOUT, "backward leaves each outer rank the gradient of its own samples",
        r"s0/m0/grad_output/layers\.0/0", _division_not_gathered_in_backward, ("missing_reduction", "zero_block"),
        ("axis outer",)),
    Bug("loaded-by-the-wide-map", "galvatron", LAYOUT, "a narrow layer's weight is loaded by the offsets of a wide one",
        r"s0/param/layers\.1\.mlp\.up\.weight/0", _loaded_by_the_wide_map,
        ("source", "wrong_order", "shifted", "localised", "replicas_diverge")),
    Bug("norm-gradient-not-reduced", "galvatron", LAYOUT, "one norm of a narrow layer keeps each rank's gradient",
        r"s0/main_grad/layers\.2\.attention_norm\.weight/0", _norm_gradient_not_reduced,
        ("missing_reduction", "replicas_diverge"), ("axis outer",), quick=True),
]
