"""Where Megatron-core's parameters lie, by sharded_state_dict, matched with parameters by their memory.

A shard has the global shape and this rank's offset. Its keys are those of checkpoints, which differ from
the names of modules, and one key stacks layers or experts of the same kind; so we use only what the shard
says about the parameter's own dimensions. For models without ``sharded_state_dict`` we use the attributes
that tensor-parallel layers set on their parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..base.layout import Layout
from ..base.names import log
from ..base.quantised import memory_of
from ..base.values import Dims
from .megatron_chunks import Chunk, Groups
from .parallel_layers import has_norm

_NAMES = "hijklm"


class Shard:
    """One box of a parameter: offsets and shapes along the parameter's own dimensions."""

    def __init__(self, entry: Any):
        skip = entry.prepend_axis_num
        self.local = tuple(entry.local_shape)
        self.whole = tuple(entry.global_shape)[skip:]
        self.offset = tuple(entry.global_offset)[skip:]
        self.padded = bool(entry.allow_shape_mismatch)


def parameter_dims(
    chunk: Chunk, layout: Layout, vocab_size: int | None
) -> Callable[[str, torch.nn.Parameter, bool], Dims | None]:
    """Returns a function that maps name, parameter, and whether stages tie it, to its dims."""
    model = chunk.model
    shards = _shards_by_memory(chunk)

    def dims_of(name: str, parameter: torch.nn.Parameter, is_tied: bool) -> Dims:
        is_expert = not getattr(parameter, "allreduce", True)
        axis = "etp" if is_expert and layout.size("etp") > 1 else "tp"
        found = shards.get(memory_of(parameter))
        texts = (
            _from_shards(name, parameter, found, layout, axis, vocab_size)
            if found
            else _from_attributes(parameter, axis)
        )
        is_summed = (
            getattr(parameter, "sequence_parallel", False)
            or _is_norm_of_heads(model, name)
            or _is_norm_of_a_linear(model, name)
        )
        return Dims(" ".join(texts), " ".join(_with_addends(texts, layout, is_summed, is_tied)))

    return dims_of


def _shards_by_memory(chunk: Chunk) -> dict[int, list[Shard]]:
    model = chunk.model
    if not hasattr(model, "sharded_state_dict"):
        return {}
    try:
        entries = list(_entries(model.sharded_state_dict(prefix="", **_metadata(chunk.groups))))
    except Exception as error:  # the model's own code failed; attributes are the fallback
        log.warning(
            "ttrace: sharded_state_dict of %s failed (%s); ttrace places parameters by their attributes instead",
            type(model).__name__,
            error,
        )
        return {}
    result: dict[int, list[Shard]] = {}
    for memory, entry in entries:
        result.setdefault(memory, []).append(Shard(entry))
    return result


def _metadata(groups: Groups) -> dict[str, Any]:
    """Newer versions expect the group over which parameters are replicated."""
    from megatron.core import parallel_state

    try:
        group = groups.given("dp_cp") or parallel_state.get_data_parallel_group(with_context_parallel=True)
    except (AssertionError, TypeError):
        return {}
    return {"metadata": {"dp_cp_group": group}}


def _entries(tree: Any) -> Iterator[tuple[int, Any]]:
    """Address of the parameter and the shard, for every shard of it."""
    if isinstance(tree, dict):
        for value in tree.values():
            yield from _entries(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from _entries(value)
    elif hasattr(tree, "build") and hasattr(tree, "merge_fn"):
        if isinstance(tree.data, torch.Tensor):
            yield from ((memory_of(tree.data), entry) for _, entry in _entries(tree.build()))
    elif hasattr(tree, "prepend_axis_num") and isinstance(tree.data, torch.Tensor):
        yield memory_of(tree.data), tree  # other objects (extra states of TransformerEngine) are no shards


def _from_shards(
    name: str,
    parameter: torch.nn.Parameter,
    shards: list[Shard],
    layout: Layout,
    axis: str,
    vocab_size: int | None,
) -> list[str]:
    size, rank = layout.size(axis), layout.coordinate(axis)
    shards = sorted(shards, key=lambda shard: shard.offset)
    texts = []
    for dim in range(parameter.dim()):
        letter = _NAMES[dim]
        whole = shards[0].whole[dim]
        local = parameter.shape[dim]
        parts = len({shard.offset[dim] for shard in shards})
        if whole == local:
            texts.append(letter)
            continue
        extent = local // parts
        pieces = whole // extent
        expected = [rank + part * size for part in range(parts)]
        offsets = sorted({shard.offset[dim] // extent for shard in shards})
        if pieces != size * parts or offsets != expected:
            raise ValueError(
                f"{name}: dimension {dim} of {whole} elements is cut into pieces {offsets} of {pieces} on "
                f"this rank, which is rank {rank} of {size} along {axis}; ttrace cannot derive such a "
                "placement, so declare it in an annotation file"
            )
        true = f"={vocab_size}" if vocab_size and shards[0].padded and dim == 0 else ""
        texts.append(f"{letter}{true}[{axis}]" if parts == 1 else f"({parts}*{letter}[{axis}])")
    return texts


def _from_attributes(parameter: Any, axis: str) -> list[str]:
    texts = list(_NAMES[: parameter.dim()])
    if getattr(parameter, "tensor_model_parallel", False):
        dim = parameter.partition_dim
        stride = getattr(parameter, "partition_stride", 1)
        cut = f"{texts[dim]}[{axis}]"
        texts[dim] = cut if stride == 1 else f"({stride}*{cut})"
    return texts


def _is_norm_of_heads(model: torch.nn.Module, name: str) -> bool:
    """Norms of queries and keys: every tensor-parallel rank applies them to heads of its own."""
    is_latent = getattr(getattr(model, "config", None), "multi_latent_attention", False)
    return not is_latent and name.split(".")[-2:-1] in (["q_layernorm"], ["k_layernorm"])


def _is_norm_of_a_linear(model: torch.nn.Module, name: str) -> bool:
    """Weights of the norm within a linear that takes a part of the positions (LayerNormLinear)."""
    owner, _, own = name.rpartition(".")
    if not own.startswith("layer_norm_"):
        return False
    module = model.get_submodule(owner)
    return has_norm(module) and bool(getattr(module, "sequence_parallel", False))


def _with_addends(texts: list[str], layout: Layout, is_summed: bool, is_tied: bool) -> list[str]:
    """Dims of a micro-batch's gradient: ranks that saw other tokens or other heads hold addends."""
    axes = []
    if layout.size("cp") > 1:
        axes.append("cp")
    if is_summed and layout.size("tp") > 1:
        axes.append("tp")
    if is_tied:
        axes.append("tied")
    if not axes:
        return texts
    partial = ",".join(axis + ":partial" for axis in axes)
    for i, text in enumerate(texts):
        if "[" not in text:
            return [*texts[:i], f"{text}[{partial}]", *texts[i + 1 :]]
    first = texts[0]
    at = first.rindex("]")
    return [first[:at] + "," + partial + first[at:], *texts[1:]]
