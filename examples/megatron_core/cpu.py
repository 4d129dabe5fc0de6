"""Megatron-core on CPUs with Gloo: what the package takes for granted of CUDA, patched from outside.

Nothing of this is needed on GPUs, and nothing of it concerns TTrace. Import it and call ``apply()`` before
anything of ``megatron``. The package itself stays as it was installed (0.9 to 0.19).

    torch.cuda.current_device() is the CPU, and tensors that are asked for on "cuda" are made there;
    streams, events and synchronisation do nothing, since work on a CPU is in order;
    Tensor.type() names the CUDA type, which Megatron compares as a string;
    the random state of the GPU is the CPU's;
    Gloo gathers and scatters lists of equal parts only: uneven ones go by broadcasts and sums;
    a few places that need TransformerEngine or a GPU's memory are repaired.

`TorchNorm` is torch's LayerNorm or RMSNorm with Megatron's arguments. Unlike the package's own it marks
its weights for sequence parallelism, so that it may be used with it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import os
import types
import warnings

import old_versions
import torch

_CPU = torch.device("cpu")
_FACTORIES = (
    "zeros ones empty full tensor arange rand randn randint eye linspace as_tensor "
    "zeros_like ones_like empty_like full_like rand_like randn_like"
)
_METHODS = "to new_zeros new_ones new_empty new_full new_tensor"
_applied = False


def apply(fusions: bool = False) -> None:
    """Patches torch and the parts of Megatron-core that are installed. Once.

    The package compiles small functions when it is imported. Without `fusions` they stay as they are.
    """
    global _applied
    if _applied:
        return
    _applied = True
    if not fusions:
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    old_versions.apply()
    _redirect_devices()
    _silence_streams()
    _share_random_state()
    _split_uneven_collectives()
    warnings.filterwarnings("ignore", message=".*(Transformer Engine|Apex).*")
    warnings.filterwarnings("ignore", message=".*c10d::broadcast_.*|.*custom_(fwd|bwd).*")
    _repair_package()


def _redirect_devices() -> None:
    def is_cuda(device: object) -> bool:
        if isinstance(device, torch.device):
            return device.type == "cuda"
        return isinstance(device, str) and device.startswith("cuda")

    def redirected(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            if is_cuda(kwargs.get("device")):
                kwargs["device"] = _CPU
            kwargs.pop("pin_memory", None)
            return function(*(_CPU if is_cuda(arg) else arg for arg in args), **kwargs)

        return call

    for name in _FACTORIES.split():
        setattr(torch, name, redirected(getattr(torch, name)))
    for name in _METHODS.split():
        setattr(torch.Tensor, name, redirected(getattr(torch.Tensor, name)))
    torch.cuda.current_device = lambda: _CPU
    torch.Tensor.cuda = lambda self, *args, **kwargs: self
    torch.Tensor.pin_memory = lambda self, *args, **kwargs: self
    torch.Tensor.record_stream = lambda self, *args: None
    torch.nn.Module.cuda = lambda self, *args, **kwargs: self
    own_type = torch.Tensor.type

    def type_on_cuda(self, *args, **kwargs):
        if args or kwargs:
            return own_type(self, *args, **kwargs)
        return own_type(self).replace("torch.", "torch.cuda.", 1)

    torch.Tensor.type = type_on_cuda
    histc = torch.histc  # has no CPU kernel for integers, with which old routers call it

    def count(tensor, *args, **kwargs):
        # Rounded, because noise passes move what is computed.
        return histc(tensor.double(), *args, **kwargs).round().to(tensor.dtype)

    torch.histc = count


class _InOrder:
    """A stream or an event of a device whose work is in order."""

    cuda_stream = 0

    def __init__(self, *args, **kwargs):
        pass

    def record_event(self, event=None):
        return event or _InOrder()

    def query(self):
        return True

    def _nothing(self, *args, **kwargs):
        pass

    record = wait = wait_event = wait_stream = synchronize = _nothing

    def __eq__(self, other):
        return isinstance(other, _InOrder)

    __hash__ = object.__hash__


def _silence_streams() -> None:
    cuda = torch.cuda
    stream = _InOrder()
    cuda.Stream = cuda.Event = _InOrder
    cuda.current_stream = cuda.default_stream = lambda *args, **kwargs: stream
    cuda.stream = lambda *args, **kwargs: contextlib.nullcontext()
    for name in ("synchronize", "empty_cache", "set_device", "set_stream"):
        setattr(cuda, name, lambda *args, **kwargs: None)
    cuda.nvtx.range_push = cuda.nvtx.range_pop = lambda *args, **kwargs: None


def _get_state(*unused, **unused_too):
    return torch.get_rng_state()


def _set_state(state, *unused, **unused_too):
    torch.set_rng_state(state)


def _share_random_state() -> None:
    for owner in (torch.cuda, torch.cuda.random):
        owner.get_rng_state = _get_state
        owner.set_rng_state = _set_state
        owner.manual_seed = owner.manual_seed_all = torch.default_generator.manual_seed


def _split_uneven_collectives() -> None:
    dist = torch.distributed
    gather_even, scatter_even = dist.all_gather, dist.reduce_scatter

    def all_gather(tensors, tensor, group=None, async_op=False):
        if len({part.shape for part in tensors}) == 1:
            return gather_even(tensors, tensor, group=group, async_op=async_op)
        tensors[dist.get_rank(group)].copy_(tensor)
        for rank, part in enumerate(tensors):
            dist.broadcast(part, group=group, group_src=rank)
        return None

    def reduce_scatter(output, inputs, op=dist.ReduceOp.SUM, group=None, async_op=False):
        if len({part.shape for part in inputs}) == 1:
            return scatter_even(output, inputs, op=op, group=group, async_op=async_op)
        for rank, part in enumerate(inputs):
            total = part.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(total, op=op, group=group)
            if rank == dist.get_rank(group):
                output.copy_(total)
        return None

    dist.all_gather, dist.reduce_scatter = all_gather, reduce_scatter


def _repair_package() -> None:
    import megatron.core.tensor_parallel.random as random

    random._get_cuda_rng_state = _get_state
    random._set_cuda_rng_state = _set_state
    # It compares the default generator's state with itself and warns.
    logging.getLogger(random.__name__).setLevel(logging.ERROR)
    with contextlib.suppress(ImportError, AttributeError):
        import megatron.core.transformer.moe.moe_utils as moe_utils

        if not hasattr(moe_utils, "te_general_gemm"):  # used without TransformerEngine as well
            moe_utils.te_general_gemm = None
        import megatron.core.transformer.moe.token_dispatcher as dispatcher

        own = dispatcher.maybe_move_tensor_to_cpu

        def to_numpy(tensor, as_numpy=False, record_stream=False):
            if as_numpy and isinstance(tensor, torch.Tensor):
                return tensor.numpy()
            return own(tensor, as_numpy, record_stream)

        dispatcher.maybe_move_tensor_to_cpu = to_numpy
    with contextlib.suppress(ImportError, AttributeError):
        import megatron.core.extensions.transformer_engine as extensions

        if extensions.cpu_offload is None:  # offloading of activations sets its flag
            extensions.cpu_offload = types.SimpleNamespace(CPUOffloadEnabled=False)
    with contextlib.suppress(ImportError):
        import megatron.core.transformer.multi_latent_attention as latent

        if not isinstance(latent.TELinear, type):  # it asks what is an instance of None
            latent.HAVE_TE = False
    with contextlib.suppress(ImportError, AttributeError):
        import megatron.core.fp8_utils as fp8_utils  # 0.12 raises for an empty list of parameters

        if not fp8_utils.HAVE_TE:
            fp8_utils._quantize_param_shard_impl = lambda *args, **kwargs: None


def norms_all_latents() -> bool:
    """Whether latent attention may have norms without qk_layernorm; from 0.18 on it refuses them."""
    return importlib.util.find_spec("megatron.core.transformer.mla_qk_norm_config") is None


class TorchNorm(torch.nn.Module):
    """torch's norm of the configured kind, its weights marked for sequence parallelism."""

    def __new__(cls, config, hidden_size, eps=1e-5, **unused):
        kind = torch.nn.RMSNorm if config.normalization == "RMSNorm" else torch.nn.LayerNorm
        norm = kind(hidden_size, eps=eps)
        for parameter in norm.parameters():
            parameter.sequence_parallel = config.sequence_parallel
        return norm
