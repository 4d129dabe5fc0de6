"""torchtitan 0.3 on CPUs with Gloo: what the package takes for granted of GPUs, set from outside.

Nothing of this is needed on GPUs, and nothing of it concerns TTrace. Import it and call ``apply()`` before anything
of ``torchtitan``. The package itself stays as it was installed.

    the type of the device is "cpu", its module torch.cpu, and its memory is not watched;
    packages that these programs do not use (tensorboard, datasets, PIL) need not be installed;
    FSDP2 sums gradients plainly, since Gloo has no sum of products;
    a pipeline's step takes micro-batches in lists, as it does in a torch newer than 2.13.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import logging
import sys
import types

import torch

_UNUSED = ("tensorboard", "torch.utils.tensorboard", "datasets", "datasets.distributed", "PIL", "PIL.Image")
_KERNELS = "torchtitan.distributed.minimal_async_ep.kernels"  # in Triton, which torch for CPUs does not bring


class _Anything(types.ModuleType):
    """A module that is imported and never used: every name in it is a class of its own."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def apply() -> None:
    """Once, before anything of torchtitan is imported."""
    for name in _UNUSED:
        root = name.rpartition("torch.utils.")[2].split(".")[0]
        if isinstance(sys.modules.get(root), _Anything) or importlib.util.find_spec(root) is None:
            sys.modules[name] = _Anything(name)
            sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
    sys.modules[_KERNELS] = _Anything(_KERNELS)
    own = torch._utils._get_available_device_type
    torch._utils._get_available_device_type = lambda: "cpu"
    try:
        import torchtitan.tools.utils  # it asks once
    finally:
        torch._utils._get_available_device_type = own
    _without_memory_monitor()
    import torchtitan.config
    import torchtitan.distributed.utils as utils

    torchtitan.config.TORCH_DTYPE_MAP["float64"] = torch.float64  # for checks in higher precision
    utils.set_pg_timeouts = lambda *args, **kwargs: None  # it names the GPU in a barrier
    _sum_plainly()
    _take_lists_of_microbatches()
    logging.getLogger().setLevel(logging.WARNING)


def _without_memory_monitor() -> None:
    import torchtitan.components.metrics as metrics

    class Monitor:
        device_name = "cpu"

        def get_peak_stats(self):
            return metrics.DeviceMemStats(*[0] * len(metrics.DeviceMemStats._fields))

        def reset_peak_stats(self):
            pass

    metrics.build_device_memory_monitor = Monitor


def _sum_plainly() -> None:
    import torchtitan.distributed.fsdp as fsdp

    own = fsdp.disable_fsdp_gradient_division

    def disable(model: torch.nn.Module) -> None:
        own(model)
        for module in model.modules():
            if isinstance(module, fsdp.FSDPModule):
                module.set_force_sum_reduction_for_comms(True)

    fsdp.disable_fsdp_gradient_division = disable


def _take_lists_of_microbatches() -> None:
    from torch.distributed.pipelining.schedules import PipelineScheduleMulti, PipelineScheduleSingle

    def joined(parts: list) -> torch.Tensor:
        return torch.cat(parts) if isinstance(parts[0], torch.Tensor) else parts[0]

    for schedule in (PipelineScheduleSingle, PipelineScheduleMulti):

        def step(self, arg_mbs=None, kwarg_mbs=None, target_mbs=None, own=schedule.step, **options):
            args = [joined(list(values)) for values in zip(*arg_mbs or [])]
            kwargs = {name: joined([kwargs[name] for kwargs in kwarg_mbs]) for name in kwarg_mbs[0]}
            target = None if target_mbs is None else joined(target_mbs)
            return own(self, *args, target=target, **options, **kwargs)

        schedule.step = step
