"""Runs train.py with one silent bug, which is put into it from outside.

torchrun --nproc-per-node 2 planted_bug.py NAME [options of train.py]
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate

sys.path.insert(0, str(Path(__file__).parent))  # train.py


@dataclass(frozen=True)
class Bug:
    what: str
    ranks: int
    options: str
    expected: str  # regular expression found in the id of the first divergence
    apply: Callable[[], None]
    reference: str = ""  # options of the reference


def _replace(owner, name: str, make: Callable) -> None:
    setattr(owner, name, make(getattr(owner, name)))


def _fsdp_gradients_summed() -> None:
    import train

    def summed(own):
        def shard(module, **options):
            module = own(module, **options)
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # Gloo has no sum of products
            return module

        return shard

    _replace(train, "fully_shard", summed)


def _hsdp_replicas_not_reduced() -> None:
    """As a program that accumulates gradients leaves it before all but the last micro-batch."""
    import train

    def local(own):
        def shard(module, **options):
            module = own(module, **options)
            module.set_requires_all_reduce(False)
            return module

        return shard

    _replace(train, "fully_shard", local)


def _ddp_never_synchronises() -> None:
    def unsynchronised(own):
        def forward(self, *args, **kwargs):
            with self.no_sync():
                return own(self, *args, **kwargs)

        return forward

    _replace(torch.nn.parallel.DistributedDataParallel, "forward", unsynchronised)


def _ddp_leaves_out_a_parameter() -> None:
    def ignoring(own):
        def init(self, module, *args, **kwargs):
            name = "layers.1.feed_forward.w2.weight"
            own_class._set_params_and_buffers_to_ignore_for_model(module, [name])
            own(self, module, *args, **kwargs)

        return init

    own_class = torch.nn.parallel.DistributedDataParallel
    _replace(own_class, "__init__", ignoring)


def _row_output_not_summed() -> None:
    import torch.distributed.tensor.parallel.style as style

    linears = []

    def partial(own):
        def apply(self, module, mesh):
            if isinstance(module, torch.nn.Linear):
                linears.append(module)
            if linears == [module]:  # the first wo
                self = copy.copy(self)
                self._prepare_output_fn = lambda layouts, is_local, module, outputs, mesh: outputs.to_local()
            return own(self, module, mesh)

        return apply

    _replace(style.RowwiseParallel, "_apply", partial)


def _norm_gradients_not_summed() -> None:
    """Each rank takes its part of the sequence's gradient of a norm's weight for the whole."""

    import train

    def unreduced(own):
        def init(self, *args, **kwargs):
            own(self, *args, **kwargs)
            self.register_step_pre_hook(keep_local)

        return init

    def keep_local(optimizer, args, kwargs):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad
                if isinstance(gradient, DTensor) and any(p.is_partial() for p in gradient.placements):
                    parameter.grad = DTensor.from_local(
                        gradient.to_local(), gradient.device_mesh, [Replicate()], run_check=False
                    )

    _replace(train.torch.optim.AdamW, "__init__", unreduced)


def _norm_left_out_of_the_plan() -> None:
    import train

    def incomplete(own):
        def parallelize(module, mesh, plan):
            if not hasattr(module, "layers"):
                plan = {name: style for name, style in plan.items() if name != "ffn_norm"}
            return own(module, mesh, plan)

        return parallelize

    _replace(train, "parallelize_module", incomplete)


def _stage_gradients_not_scaled() -> None:
    import train

    _replace(train, "Schedule1F1B", lambda own: lambda *a, **k: own(*a, **{**k, "scale_grads": False}))


def _stage_labels_shifted() -> None:
    import train

    _replace(train, "losses_of", lambda own: lambda logits, labels: own(logits, labels.roll(1, 1)))


def _one_rank_skips_the_update() -> None:
    import train

    def stale(own):
        def init(self, *args, **kwargs):
            own(self, *args, **kwargs)

            def undo(optimizer, args, kwargs):
                if dist.get_rank() == 1:
                    parameter = optimizer.param_groups[0]["params"][3]
                    parameter._local_tensor.copy_(self._kept)

            def keep(optimizer, args, kwargs):
                self._kept = optimizer.param_groups[0]["params"][3]._local_tensor.clone()

            self.register_step_pre_hook(keep)
            self.register_step_post_hook(undo)

        return init

    _replace(train.torch.optim.AdamW, "__init__", stale)


BUGS: dict[str, Bug] = {
    "fsdp-gradients-summed": Bug(
        "FSDP2 sums gradients over data-parallel ranks without the divisor",
        2,
        "--fsdp",
        r"main_grad/",
        _fsdp_gradients_summed,
    ),
    "hsdp-replicas-not-reduced": Bug(
        "HSDP reduces gradients within a group that shards, and not over its replicas",
        4,
        "--hsdp",
        r"main_grad/",
        _hsdp_replicas_not_reduced,
    ),
    "ddp-never-synchronises": Bug(
        "DDP's no_sync is left on for the last micro-batch",
        2,
        "--ddp",
        r"main_grad/",
        _ddp_never_synchronises,
    ),
    "ddp-leaves-out-a-parameter": Bug(
        "DDP does not reduce one parameter's gradient",
        2,
        "--ddp",
        r"main_grad/layers\.1\.feed_forward\.w2\.weight",
        _ddp_leaves_out_a_parameter,
    ),
    "row-output-not-summed": Bug(
        "a row-wise linear hands on its addend",
        2,
        "--tp 2",
        r"output/layers\.0\.attention\.wo",
        _row_output_not_summed,
    ),
    "norm-gradients-not-summed": Bug(
        "under sequence parallelism norms keep one rank's gradient",
        2,
        "--tp 2 --sp",
        r"main_grad/.*norm",
        _norm_gradients_not_summed,
    ),
    "norm-left-out-of-the-plan": Bug(
        "a norm's weight stays a plain tensor, whose gradient nobody reduces over parts of the sequence",
        2,
        "--tp 2 --sp",
        r"main_grad/layers\.\d\.ffn_norm\.",
        _norm_left_out_of_the_plan,
    ),
    "stage-gradients-not-scaled": Bug(
        "gradients of all micro-batches are not divided by their number",
        2,
        "--pp",
        r"main_grad/",
        _stage_gradients_not_scaled,
        "--microbatches 4",
    ),
    "stage-labels-shifted": Bug(
        "the last stage's labels are off by one position",
        2,
        "--pp",
        r"grad_output/(model|head)",
        _stage_labels_shifted,
        "--microbatches 4",
    ),
    "one-rank-skips-an-update": Bug(
        "one rank does not update its shard of a parameter",
        2,
        "--fsdp",
        r"param_next/",
        _one_rank_skips_the_update,
    ),
}


def main() -> None:
    name = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if name not in BUGS:
        sys.exit(f"planted_bug.py: there is no bug {name!r}; name one of {', '.join(BUGS)}")
    import train

    BUGS[name].apply()
    train.train(train.arguments())


if __name__ == "__main__":
    main()
