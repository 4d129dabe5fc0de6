"""Megatron-core: models built of its layers, in its DistributedDataParallel, with its optimizers.

Nothing is annotated by hand. Where parameters lie comes from ``sharded_state_dict``, whose entries are
matched with parameters by their memory; where activations lie comes from the class of the module and its
configuration; layer and expert numbers are made global; micro-batches are the forwards of a chunk within
a step; main gradients and optimizer shards are read where the optimizer keeps them.

Left out, because a run cannot give them or because they are the same as others: transformer blocks (their
output is the last layer's, or the final norm's), identities, everything inside of an expert (which tokens
it gets depends on the routing; the MoE layer's output is traced), and the word embeddings' own output where
they reduce-scatter it (``[s, b, h]`` instead of ``[b, s, h]``; the embedding's output is traced).

Options of `ttrace.attach`:
    vocab_size: true size of the vocabulary, where it is padded for some layouts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from ..layout import Layout
from ..names import canonical, traced_modules
from ..program import (
    Description,
    Dims,
    Gradient,
    OptimizerState,
    Parameter,
    Program,
    Site,
    Untraced,
    precision_of,
)
from ..tracer import Tracer
from .megatron_activations import SHARED, activation_dims, is_left_out
from .megatron_parameters import parameter_dims
from .megatron_routing import is_router, watch_routing

_WRAPPERS = ("DistributedDataParallel", "Float16Module", "FullyShardedDataParallel")
_TIED = "embedding.word_embeddings.weight"

# What both runs must have in common.
_MODEL_FIELDS = (
    "num_layers",
    "hidden_size",
    "num_attention_heads",
    "num_query_groups",
    "ffn_hidden_size",
    "kv_channels",
    "normalization",
    "layernorm_epsilon",
    "gated_linear_unit",
    "add_bias_linear",
    "num_moe_experts",
    "moe_router_topk",
    "hidden_dropout",
    "attention_dropout",
)


def recognises(chunks: Sequence[Any]) -> bool:
    """Whether this is a Megatron-core model; does not import it."""
    module = sys.modules.get("megatron.core.transformer.module")
    return module is not None and all(
        isinstance(chunk, torch.nn.Module) and isinstance(unwrap(chunk), module.MegatronModule)
        for chunk in chunks
    )


def unwrap(chunk: torch.nn.Module) -> torch.nn.Module:
    while type(chunk).__name__ in _WRAPPERS and isinstance(chunk.module, torch.nn.Module):
        chunk = chunk.module
    return chunk


class Chunk:
    """A part of the model that this rank holds: all of it, or one virtual pipeline stage."""

    def __init__(self, wrapped: torch.nn.Module):
        self.wrapped = wrapped
        self.model: Any = unwrap(wrapped)
        self.config: Any = self.model.config
        self.forwards = 0  # in this step
        self.pre_process = bool(getattr(self.model, "pre_process", True))
        self.post_process = bool(getattr(self.model, "post_process", True))
        self._renamed = list(_renamed(self.model))

    def path_of(self, name: str) -> str:
        """`name` within the chunk, made global."""
        path = canonical(name)
        for local, globally in self._renamed:
            if path == local or path.startswith(local + "."):
                path = globally + path[len(local) :]
                break
        return _expert_path(self.model, path)

    def layer_path(self, index: int) -> str | None:
        """Of the first (0) or last (-1) layer of the decoder; None where the chunk has none."""
        layers = getattr(getattr(self.model, "decoder", None), "layers", None)
        if not layers:
            return None
        return f"decoder.layers.{layers[index].layer_number - 1}"


def _renamed(model: torch.nn.Module) -> Iterator[tuple[str, str]]:
    for name, module in model.named_modules():
        number = getattr(module, "layer_number", None)
        parts = name.split(".")
        if isinstance(number, int) and parts[-1].isdigit() and parts[-2:-1] == ["layers"]:
            yield name, ".".join([*parts[:-1], str(number - 1)])


def _expert_path(model: Any, path: str) -> str:
    """Experts are numbered over all ranks."""
    head, found, tail = path.partition(".local_experts.")
    if not found:
        return path
    number, dot, rest = tail.partition(".")
    count = getattr(model.config, "num_moe_experts", None) or 1
    ranks = _parallel("expert_model_parallel_world_size")
    first = _parallel("expert_model_parallel_rank", 0) * (count // ranks)
    return f"{head}.local_experts.{int(number) + first}{dot}{rest}"


def _parallel(name: str, default: int = 1, **arguments: Any) -> int:
    """A size or rank of megatron.core.parallel_state; `default` where this version has no such axis."""
    from megatron.core import parallel_state

    getter = getattr(parallel_state, "get_" + name, None)
    try:
        return default if getter is None else int(getter(**arguments))
    except (AssertionError, AttributeError):  # the group was not made
        return default


def layout_of(chunk: Chunk) -> Layout:
    """Axes tp, sp, cp, dp, pp, ep and etp, kv for fewer query groups than tp, tied for tied embeddings."""
    layout = Layout()
    if torch.distributed.is_initialized():
        layout.rank = torch.distributed.get_rank()
        layout.world_size = torch.distributed.get_world_size()
    tp = _parallel("tensor_model_parallel_world_size")
    tp_rank = _parallel("tensor_model_parallel_rank", 0)
    layout.add("tp", tp, tp_rank)
    if chunk.config.sequence_parallel:
        layout.add("sp", tp, tp_rank, follows="tp")
    layout.add("cp", _parallel("context_parallel_world_size"), _parallel("context_parallel_rank", 0))
    pp = _parallel("pipeline_model_parallel_world_size")
    pp_rank = _parallel("pipeline_model_parallel_rank", 0)
    layout.add("pp", pp, pp_rank)
    layout.add("dp", _parallel("data_parallel_world_size"), _parallel("data_parallel_rank", 0))
    ep = _parallel("expert_model_parallel_world_size")
    if ep > 1:
        layout.add("ep", ep, _parallel("expert_model_parallel_rank", 0))
    etp = _parallel("expert_tensor_parallel_world_size", tp)
    if chunk.config.num_moe_experts and etp > 1:
        layout.add("etp", etp, _parallel("expert_tensor_parallel_rank", tp_rank))
    groups = getattr(chunk.config, "num_query_groups", None) or chunk.config.num_attention_heads
    if groups < tp:
        copies = tp // groups
        layout.add("kv", groups, tp_rank // copies)
        layout.add("kv_copy", copies, tp_rank % copies)
    if pp > 1:
        layout.add("tied", 2, int(pp_rank == pp - 1))
    return layout


class MegatronProgram(Program):
    """See the head of this file."""

    def __init__(
        self,
        chunks: Sequence[torch.nn.Module],
        optimizer: Any,
        describe: Mapping[str, Any],
        vocab_size: int | None = None,
    ):
        self.chunks = [Chunk(chunk) for chunk in chunks]
        self.config: Any = self.chunks[0].config
        self.optimizer = optimizer
        self.describe = describe
        self.vocab_size = vocab_size
        self.layout = layout_of(self.chunks[0])
        self._reduced = False
        self._gathered: set[int] = set()  # ids of parameters that are gathered in the next forward
        self._parameters = [parameter for chunk in self.chunks for parameter in self._parameters_of(chunk)]

    # --- what the model is -------------------------------------------------------------------------

    def description(self) -> Description:
        import megatron.core

        fields = {name: getattr(self.config, name, None) for name in _MODEL_FIELDS}
        model = {name: str(value) for name, value in fields.items() if value is not None}
        model["class"] = type(self.chunks[0].model).__name__
        model.update({key: str(value) for key, value in self.describe.items()})
        return Description(
            precision=precision_of(parameter.tensor for parameter in self._parameters),
            model=model,
            versions={"megatron-core": megatron.core.__version__},
            untraced=self._untraced(),
            roles={"tokens": "tokens input_ids"},
        )

    def _untraced(self) -> list[str]:
        patterns = []
        if any(
            getattr(module, "reduce_scatter_embeddings", False)
            for chunk in self.chunks
            for module in chunk.model.modules()
        ):
            patterns.append(r"put/embedding\.word_embeddings/")
        if self.layout.size("ep") > 1:
            # Tokens of several micro-batches meet in an expert.
            patterns.append(r"param_grad/.*\.local_experts\.")
        if getattr(self.config, "gradient_accumulation_fusion", False):
            patterns.append(r"/param_grad/")  # autograd never sees them
        return patterns

    def parameters(self) -> list[Parameter]:
        return self._parameters

    def _parameters_of(self, chunk: Chunk) -> Iterator[Parameter]:
        dims_of = parameter_dims(chunk.model, self.layout, self.vocab_size)
        for name, parameter in chunk.model.named_parameters():
            path = chunk.path_of(name)
            is_tied = bool(getattr(parameter, "shared_embedding", False)) or (
                getattr(parameter, "shared", False) and path == "output_layer.weight"
            )
            if is_tied and self.layout.size("pp") > 1:
                path = _TIED
            dims = dims_of(name, parameter, is_tied and self.layout.size("pp") > 1)
            yield Parameter(path, parameter, dims, parameter)

    def sites(self) -> list[Site]:
        result = []
        for chunk in self.chunks:
            for name, module in traced_modules(chunk.model):
                if name and not is_left_out(name, module):
                    result.append(Site(chunk.path_of(name), module))
        return result

    def placement(
        self, site: Site, role: str, slot: int, tensor: torch.Tensor, inside: torch.Tensor | None
    ) -> Dims | Untraced | None:
        del inside
        return activation_dims(site, role, slot, tensor, self.config, self.layout)

    def data_dims(self, name: str, tensor: torch.Tensor) -> str | None:
        del name
        return "b s[cp:zigzag]" if tensor.dim() == 2 and self.layout.size("cp") > 1 else None

    # --- when things happen ------------------------------------------------------------------------

    def watch(self, tracer: Tracer) -> None:
        for site in self.sites():
            if is_router(site.module):
                self._watch_router(tracer, site)
        self._watch_gathering(tracer)
        if self.optimizer is not None:
            self._watch_optimizer(tracer)

    def hook_models(self, tracer: Tracer) -> Iterator[RemovableHandle]:
        for chunk in self.chunks:
            yield chunk.model.register_forward_pre_hook(
                self._forward_begins(tracer, chunk), with_kwargs=True, prepend=True
            )
            yield chunk.model.register_forward_hook(self._forward_ends(tracer, chunk), with_kwargs=True)

    def gathered_later(self) -> list[str]:
        return [parameter.path for parameter in self._parameters if id(parameter.object) in self._gathered]

    def refresh_masters(self) -> None:
        if self.optimizer is not None:
            self.optimizer.reload_model_params()

    def step_begins(self, tracer: Tracer) -> None:
        self._reduced = False
        for chunk in self.chunks:
            chunk.forwards = 0
        finalize = self.config.finalize_model_grads_func
        if finalize is None or getattr(finalize, "_ttrace", False):
            return

        def finalized(*args: Any, **kwargs: Any) -> Any:
            result = finalize(*args, **kwargs)
            self._gradients_are_final(tracer)
            return result

        finalized._ttrace = True  # type: ignore[attr-defined]
        for chunk in self.chunks:
            chunk.config.finalize_model_grads_func = finalized

    def _forward_begins(self, tracer: Tracer, chunk: Chunk) -> Callable[..., None]:
        def begins(module: torch.nn.Module, args: tuple, kwargs: dict) -> None:
            del module
            if not torch.is_grad_enabled():
                return
            dp = self.layout.size("dp")
            index = chunk.forwards * dp + self.layout.coordinate("dp")
            chunk.forwards += 1
            per_token = getattr(self.config, "calculate_per_token_loss", False)
            is_new = tracer.microbatch(index, 1.0 if per_token else 1.0 / dp)
            if is_new:
                record_data(tracer, args, kwargs)
            if not chunk.pre_process:
                self._receive(tracer, chunk)

        return begins

    def _forward_ends(self, tracer: Tracer, chunk: Chunk) -> Callable[..., None]:
        def ends(module: torch.nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
            del module, args
            if not torch.is_grad_enabled():
                return
            if not chunk.post_process:
                self._send(tracer, chunk, output)
            elif kwargs.get("labels") is not None and isinstance(output, torch.Tensor):
                tracer.loss(output)

        return ends

    def _receive(self, tracer: Tracer, chunk: Chunk) -> None:
        """The input comes from the stage that has the layer before: what that layer gave."""
        decoder = getattr(chunk.model, "decoder", None)
        tensor = getattr(decoder, "input_tensor", None)
        first = chunk.layer_path(0)
        if not isinstance(tensor, torch.Tensor) or first is None:
            return
        before = int(first.rsplit(".", 1)[1]) - 1
        if before < 0:
            return
        path = f"decoder.layers.{before}"
        self._place_transfer(tracer, path, tensor)
        tracer.received(path, tensor)

    def _send(self, tracer: Tracer, chunk: Chunk, output: Any) -> None:
        last = chunk.layer_path(-1)
        if isinstance(output, torch.Tensor) and last is not None:
            self._place_transfer(tracer, last, output)
            tracer.sent(last, output)

    def _place_transfer(self, tracer: Tracer, path: str, tensor: torch.Tensor) -> None:
        if tensor.dim() == 3:
            tracer.derive(path, "value", 0, "s[cp:zigzag,sp] b h")

    def _watch_gathering(self, tracer: Tracer) -> None:
        """With overlap_param_gather parameters come back bucket by bucket in the next forward."""
        paths = {id(parameter.object): parameter.path for parameter in self._parameters}

        def watch(group: Any, parameters: list[str]) -> None:
            finish = group.finish_param_sync

            def finished(*args: Any, **kwargs: Any) -> Any:
                result = finish(*args, **kwargs)
                if tracer.in_step:
                    tracer.parameters_gathered(parameters)
                return result

            group.finish_param_sync = finished

        for chunk in self.chunks:
            for group, parameters in _gathering_groups(chunk.wrapped):
                watch(group, [paths[id(parameter)] for parameter in parameters])
                self._gathered.update(id(parameter) for parameter in parameters)

    def _watch_router(self, tracer: Tracer, site: Site) -> None:
        def follow(choices: torch.Tensor, margins: torch.Tensor) -> torch.Tensor:
            if margins.dim() == 2:
                tracer.derive(site.path, "routing", 0, f"{SHARED} b k")
                tracer.derive(site.path, "routing", 1, f"{SHARED} b")
            return tracer.routing(choices, margins)

        watch_routing(site.module, site.path, lambda: tracer.in_step, follow)

    def _watch_optimizer(self, tracer: Tracer) -> None:
        step = self.optimizer.step

        def stepped(*args: Any, **kwargs: Any) -> Any:
            if tracer.in_step and not self._reduced:
                self._gradients_are_final(tracer)
            result = step(*args, **kwargs)
            if tracer.in_step:
                self._updated(tracer, result)
            return result

        self.optimizer.step = stepped

    # --- gradients and the optimizer ---------------------------------------------------------------

    def _gradients_are_final(self, tracer: Tracer) -> None:
        if not tracer.in_step or self._reduced:
            return
        self._reduced = True
        ranges = {id(parameter): part for parameter, part in _flat_ranges(self.optimizer)}
        gradients = []
        for parameter in self._parameters:
            tensor = getattr(parameter.object, "main_grad", None)
            if tensor is None:
                tensor = parameter.object.grad
            if tensor is None:
                continue
            part = ranges.get(id(parameter.object))
            if part is None and ranges and id(parameter.object) in _distributed(self.optimizer):
                continue  # other ranks reduce and keep all of it
            if part is None:
                gradients.append(Gradient(parameter.path, tensor))
            else:
                first, end = part
                gradients.append(Gradient(parameter.path, tensor.view(-1)[first:end], first))
        tracer.gradients_reduced(gradients)

    def _updated(self, tracer: Tracer, result: Any) -> None:
        if isinstance(result, tuple) and len(result) >= 2 and result[1] is not None:
            tracer.scalar("grad_norm", float(result[1]))
        states = {id(model): state for model, state in _optimizer_states(self.optimizer)}
        entries = []
        for parameter in self._parameters:
            state = states.get(id(parameter.object))
            master, moments, part = state if state else (None, {}, None)
            if parameter.tensor.dtype in (torch.float32, torch.float64):
                master = None  # the parameter is its own
            entries.append(
                OptimizerState(
                    parameter.path,
                    self._updated_part(parameter, part),
                    master,
                    moments.get("exp_avg"),
                    moments.get("exp_avg_sq"),
                    -1 if part is None else part[0],
                )
            )
        tracer.parameters_updated(entries)

    def _updated_part(self, parameter: Parameter, part: tuple[int, int] | None) -> torch.Tensor | None:
        """All of this rank's, or what it has before it is gathered."""
        if id(parameter.object) not in self._gathered:
            return parameter.tensor
        return None if part is None else parameter.tensor.view(-1)[part[0] : part[1]]


def _leaf_optimizers(optimizer: Any) -> Iterator[Any]:
    for part in getattr(optimizer, "chained_optimizers", None) or ([optimizer] if optimizer else []):
        if part is not optimizer:
            yield from _leaf_optimizers(part)
        else:
            yield part


def _is_distributed(optimizer: Any) -> bool:
    return hasattr(optimizer, "model_param_gbuf_map")


def _distributed(optimizer: Any) -> set[int]:
    """Parameters that a distributed optimizer cuts over data-parallel ranks, by id."""
    found: set[int] = set()
    for leaf in _leaf_optimizers(optimizer):
        if _is_distributed(leaf):
            for buffer in leaf.buffers:
                found.update(id(parameter) for parameter in buffer.params)
    return found


def _gathering_groups(wrapped: Any) -> Iterator[tuple[Any, list[torch.nn.Parameter]]]:
    """Groups of buckets that DistributedDataParallel gathers in the next forward, and what is in them."""
    config: Any = getattr(wrapped, "ddp_config", None)
    if config is None or not (config.use_distributed_optimizer and config.overlap_param_gather):
        return
    groups: dict[int, tuple[Any, list[torch.nn.Parameter]]] = {}
    for parameter, group in getattr(wrapped, "param_to_bucket_group", {}).items():
        groups.setdefault(id(group), (group, []))[1].append(parameter)
    yield from groups.values()


def _flat_ranges(optimizer: Any) -> Iterator[tuple[torch.nn.Parameter, tuple[int, int]]]:
    """The part of each parameter, flattened, that this rank reduces and updates."""
    for leaf in _leaf_optimizers(optimizer):
        if _is_distributed(leaf):
            for parameter in leaf.model_param_gbuf_map:
                part = leaf._get_model_param_range_map(parameter)["param"]
                if part.end > part.start:
                    yield parameter, (part.start, part.end)


def _optimizer_states(optimizer: Any) -> Iterator[tuple[torch.nn.Parameter, tuple]]:
    """Per model parameter: master copy, state of the inner optimizer, flat range or None."""
    for leaf in _leaf_optimizers(optimizer):
        inner = getattr(leaf, "optimizer", None)
        if inner is None:
            continue
        if _is_distributed(leaf):
            for parameter, part in _flat_ranges(leaf):
                group, order = leaf.model_param_group_index_map[parameter]
                master = inner.param_groups[group]["params"][order]
                yield parameter, (master, inner.state.get(master, {}), part)
        elif hasattr(leaf, "fp32_from_float16_groups"):
            pairs = zip(leaf.float16_groups, leaf.fp32_from_float16_groups)
            for models, masters in [*pairs, *((g, g) for g in leaf.fp32_from_fp32_groups)]:
                for parameter, master in zip(models, masters):
                    yield parameter, (master, inner.state.get(master, {}), None)
        else:
            for group in inner.param_groups:
                for parameter in group["params"]:
                    yield parameter, (None, inner.state.get(parameter, {}), None)


def record_data(tracer: Tracer, args: tuple, kwargs: Mapping[str, Any]) -> None:
    """Tokens and labels of the micro-batch."""
    named = {**dict(zip(("input_ids", "position_ids"), args)), **kwargs}
    for name in ("input_ids", "labels"):
        tensor = named.get(name)
        if isinstance(tensor, torch.Tensor):
            tracer.data(name, tensor)


def make(
    chunks: Sequence[torch.nn.Module], optimizer: Any, describe: Mapping[str, Any], **options: Any
) -> Program:
    return MegatronProgram(chunks, optimizer, describe, **options)
