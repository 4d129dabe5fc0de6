"""Silent bugs of DeepSpeed and of programs that use it; `what` names the issue."""

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


def _several_backwards_without_accumulation() -> None:
    """The program accumulates by itself, in an engine that is told of one micro-batch per step."""

    def one_micro_batch(own):
        def engine_of(args, *rest):
            count, args.accumulate = args.accumulate, 1
            engine = own(args, *rest)
            args.accumulate = count
            backward, step, calls = engine.backward, engine.step, []
            engine.backward = lambda loss: backward(loss / count)

            def at_the_end():
                calls.append(None)
                if len(calls) % count == 0:
                    step()

            engine.step = at_the_end
            return engine

        return engine_of

    _wrap(_script(), "engine_of", one_micro_batch)


def _bf16_has_a_loss_scale() -> None:
    from deepspeed.runtime.engine import DeepSpeedEngine

    _wrap(DeepSpeedEngine, "backward", lambda own: lambda self, loss, **options: own(self, loss * 65536, **options))


def _border_is_shifted_by_one() -> None:
    from deepspeed.runtime.zero import stage_1_and_2

    def gather(own):
        def shifted(groups_flat, *args, **kwargs):
            own(groups_flat, *args, **kwargs)
            for flat in groups_flat:
                half = flat.numel() // 2
                flat.data[half:] = flat.data[half:].roll(1)

        return shifted

    _wrap(stage_1_and_2, "all_gather_dp_groups", gather)


def _gradients_are_summed() -> None:
    from deepspeed.runtime.engine import DeepSpeedEngine

    def summed(own):
        def bucket(self, *args, **kwargs):
            return own(self, *args, **kwargs) * self.dp_world_size

        return bucket

    _wrap(DeepSpeedEngine, "allreduce_bucket", summed)


def _partitions_are_summed() -> None:
    from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3 as Stage3

    def summed(own):
        return lambda self, *args, **kwargs: [grad * 2 for grad in own(self, *args, **kwargs)]

    _wrap(Stage3, "_DeepSpeedZeroOptimizer_Stage3__avg_scatter_grads", summed)


def _norm_is_of_one_partition() -> None:
    from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer

    def own_part(own):
        def norm(self, gradients, params, *rest, **kwargs):
            del self, params, rest, kwargs
            return sum(grad.double().square().sum() for grad in gradients).sqrt().float()

        return norm

    _wrap(DeepSpeedZeroOptimizer, "get_grad_norm_direct", own_part)


def _masters_are_not_copied_back() -> None:
    from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3 as Stage3

    def without(own):
        del own
        return lambda self, sub_group_id: None

    _wrap(Stage3, "_reassign_or_swap_out_partitioned_parameters", without)


BUGS = [
    Bug(
        "backwards-without-accumulation", "accumulating", "zero 2",
        "several backwards for one step of an engine that is told of one: all gradients but the last micro-batch's are "
        "lost (allenai/open-instruct#1498)",
        r"s0/main_grad/tokens\.weight/0", _several_backwards_without_accumulation,
        ("missing_microbatch",), ("microbatch 0",), quick=True,
    ),
    Bug(
        "bf16-loss-scale", "engine", "zero 0",
        "BF16 gets a loss scale of 65536 with ZeRO-0, as FP16 does (deepspeedai/DeepSpeed#7837)",
        r"s0/m0/grad_output/(head/0|loss/0|loss/loss/0)", _bf16_has_a_loss_scale, ("wrong_factor",), ("factor 6.55e+04",),
        precision="bf16",
    ),
    Bug(
        "border-shifted", "engine", "zero 1",
        "what the second rank has updated is gathered one element too far",
        r"s0/param_next/.*", _border_is_shifted_by_one, ("shifted", "localised", "boundary"),
    ),
    Bug(
        "summed", "engine", "zero 0", "gradients are summed over the ranks and not averaged",
        r"s0/main_grad/tokens\.weight/0", _gradients_are_summed, ("wrong_factor",), ("factor 2",),
    ),
    Bug(
        "partitions-summed", "engine", "zero 3", "gradients are summed over the ranks and not averaged",
        r"s0/main_grad/tokens\.weight/0", _partitions_are_summed, ("wrong_factor",), ("factor 2",),
    ),
    Bug(
        "norm-of-one-partition", "accumulating", "zero 1",
        "every rank clips by the norm of its own partition of the gradients",
        r"s0/(exp_avg/tokens\.weight/0|scalar/grad_norm.*|.*grad_norm.*)", _norm_is_of_one_partition,
        ("local_norm", "wrong_factor", "replicas_diverge"),
    ),
    Bug(
        "masters-not-copied-back", "engine", "zero 3 persistent",
        "what the optimizer has updated is not copied back into ZeRO-3's partitions",
        r"s0/param_next/tokens\.weight/0", _masters_are_not_copied_back, ("stale",),
    ),
]  # fmt: skip
