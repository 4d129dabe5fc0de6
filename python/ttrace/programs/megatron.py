"""Megatron-core: models built of its layers, in its DistributedDataParallel, with its optimizers.

Nobody annotates anything by hand. ``sharded_state_dict`` says where parameters lie; its entries are matched
with parameters by their memory. The class of a module and its configuration say where activations lie. Layer
and expert numbers are made global. Micro-batches are the forwards of a chunk within a step. Main gradients
and optimizer shards are read where the optimizer keeps them.

Some modules are not traced, because a run cannot record them or because others have the same tensors:
transformer blocks (their output is that of the last layer or the final norm), identities, everything inside
of an expert (the routing decides which tokens it gets; the MoE layer's output is traced), and the output of
word embeddings that reduce-scatter it (``[s, b, h]`` instead of ``[b, s, h]``; the output of the embedding
around them is traced).

Options of `ttrace.attach`:
    vocab_size: true size of the vocabulary, if some layouts pad it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ..base.calls import Removable, after_call, before_call
from ..base.layout import Layout
from ..base.names import canonical, traced_modules
from ..base.program import Program
from ..base.quantised import readable
from ..base.recorder import Recorder
from ..base.values import (
    Description,
    Dims,
    Gradient,
    OptimizerState,
    Parameter,
    Site,
    Untraced,
    in_fp8,
    precision_of,
)
from .megatron_activations import activation_dims, is_left_out
from .megatron_optimizer import distributed_parameters, flat_ranges, gathering_groups, optimizer_states
from .megatron_parameters import parameter_dims
from .megatron_routing import is_router, watch_routing
from .parallel_layers import SHARED

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
        """The global path of `name`, which is a name within the chunk."""
        path = canonical(name)
        for local, globally in self._renamed:
            if path == local or path.startswith(local + "."):
                path = globally + path[len(local) :]
                break
        return _expert_path(self.model, path)

    def layer_path(self, index: int) -> str | None:
        """Path of the first (0) or last (-1) layer of the decoder; None if the chunk has no layers."""
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
    """A size or rank of megatron.core.parallel_state; `default` if this version has no such axis."""
    from megatron.core import parallel_state

    getter = getattr(parallel_state, "get_" + name, None)
    try:
        return default if getter is None else int(getter(**arguments))
    except (AssertionError, AttributeError):  # the group was not made
        return default


def layout_of(chunk: Chunk) -> Layout:
    """Axes tp, sp, cp, dp, pp, ep and etp; kv if there are fewer query groups than tp ranks; tied for tied
    embeddings."""
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
        precision = precision_of(parameter.tensor for parameter in self._parameters)
        return Description(
            precision=in_fp8(precision) if getattr(self.config, "fp8", None) else precision,
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
            yield Parameter(path, readable(parameter), dims, parameter)

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

    def watch(self, recorder: Recorder) -> None:
        for site in self.sites():
            if is_router(site.module):
                self._watch_router(recorder, site)
        self._watch_gathering(recorder)
        if self.optimizer is not None:
            self._watch_optimizer(recorder)

    def hook_models(self, recorder: Recorder) -> Iterator[Removable]:
        for chunk in self.chunks:
            yield before_call(chunk.model, self._forward_begins(recorder, chunk))
            yield after_call(chunk.model, self._forward_ends(recorder, chunk))

    def gathered_later(self) -> list[str]:
        return [parameter.path for parameter in self._parameters if id(parameter.object) in self._gathered]

    def refresh_masters(self) -> None:
        if self.optimizer is not None:
            self.optimizer.reload_model_params()

    def step_begins(self, recorder: Recorder) -> None:
        self._reduced = False
        for chunk in self.chunks:
            chunk.forwards = 0
        finalize = self.config.finalize_model_grads_func
        if finalize is None or getattr(finalize, "_ttrace", False):
            return

        def finalized(*args: Any, **kwargs: Any) -> Any:
            result = finalize(*args, **kwargs)
            self._gradients_are_final(recorder)
            return result

        finalized._ttrace = True  # type: ignore[attr-defined]
        for chunk in self.chunks:
            chunk.config.finalize_model_grads_func = finalized

    def _forward_begins(self, recorder: Recorder, chunk: Chunk) -> Callable[..., None]:
        def begins(module: torch.nn.Module, args: tuple, kwargs: dict) -> None:
            del module
            if not torch.is_grad_enabled():
                return
            dp = self.layout.size("dp")
            index = chunk.forwards * dp + self.layout.coordinate("dp")
            chunk.forwards += 1
            per_token = getattr(self.config, "calculate_per_token_loss", False)
            is_new = recorder.microbatch(index, 1.0 if per_token else 1.0 / dp)
            if is_new:
                record_data(recorder, args, kwargs)
            if not chunk.pre_process:
                self._receive(recorder, chunk)

        return begins

    def _forward_ends(self, recorder: Recorder, chunk: Chunk) -> Callable[..., None]:
        def ends(module: torch.nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
            del module, args
            if not torch.is_grad_enabled():
                return
            if not chunk.post_process:
                self._send(recorder, chunk, output)
            elif kwargs.get("labels") is not None and isinstance(output, torch.Tensor):
                recorder.loss(output)

        return ends

    def _receive(self, recorder: Recorder, chunk: Chunk) -> None:
        """The input is the output of the layer before, which another stage has."""
        decoder = getattr(chunk.model, "decoder", None)
        tensor = getattr(decoder, "input_tensor", None)
        first = chunk.layer_path(0)
        if not isinstance(tensor, torch.Tensor) or first is None:
            return
        before = int(first.rsplit(".", 1)[1]) - 1
        if before < 0:
            return
        path = f"decoder.layers.{before}"
        self._place_transfer(recorder, path, tensor)
        recorder.received(path, tensor)

    def _send(self, recorder: Recorder, chunk: Chunk, output: Any) -> None:
        last = chunk.layer_path(-1)
        if isinstance(output, torch.Tensor) and last is not None:
            self._place_transfer(recorder, last, output)
            recorder.sent(last, output)

    def _place_transfer(self, recorder: Recorder, path: str, tensor: torch.Tensor) -> None:
        if tensor.dim() == 3:
            recorder.derive(path, "value", 0, "s[cp:zigzag,sp] b h")

    def _watch_gathering(self, recorder: Recorder) -> None:
        """With overlap_param_gather the next forward gathers parameters bucket by bucket."""
        paths = {id(parameter.object): parameter.path for parameter in self._parameters}

        def watch(group: Any, parameters: list[str]) -> None:
            finish = group.finish_param_sync

            def finished(*args: Any, **kwargs: Any) -> Any:
                result = finish(*args, **kwargs)
                if recorder.in_step:
                    recorder.parameters_gathered(parameters)
                return result

            group.finish_param_sync = finished

        for chunk in self.chunks:
            for group, parameters in gathering_groups(chunk.wrapped):
                watch(group, [paths[id(parameter)] for parameter in parameters])
                self._gathered.update(id(parameter) for parameter in parameters)

    def _watch_router(self, recorder: Recorder, site: Site) -> None:
        def follow(choices: torch.Tensor, margins: torch.Tensor) -> torch.Tensor:
            if margins.dim() == 2:
                recorder.derive(site.path, "routing", 0, f"{SHARED} b k")
                recorder.derive(site.path, "routing", 1, f"{SHARED} b")
            return recorder.routing(choices, margins)

        watch_routing(site.module, site.path, lambda: recorder.in_step, follow)

    def _watch_optimizer(self, recorder: Recorder) -> None:
        step = self.optimizer.step

        def stepped(*args: Any, **kwargs: Any) -> Any:
            if recorder.in_step and not self._reduced:
                self._gradients_are_final(recorder)
            result = step(*args, **kwargs)
            if recorder.in_step:
                self._updated(recorder, result)
            return result

        self.optimizer.step = stepped

    # --- gradients and the optimizer ---------------------------------------------------------------

    def _gradients_are_final(self, recorder: Recorder) -> None:
        if not recorder.in_step or self._reduced:
            return
        self._reduced = True
        ranges = {id(parameter): part for parameter, part in flat_ranges(self.optimizer)}
        gradients = []
        for parameter in self._parameters:
            tensor = getattr(parameter.object, "main_grad", None)
            if tensor is None:
                tensor = parameter.object.grad
            if tensor is None:
                continue
            part = ranges.get(id(parameter.object))
            if part is None and ranges and id(parameter.object) in distributed_parameters(self.optimizer):
                continue  # other ranks reduce and keep all of it
            if part is None:
                gradients.append(Gradient(parameter.path, tensor))
            else:
                first, end = part
                gradients.append(Gradient(parameter.path, tensor.view(-1)[first:end], first))
        recorder.gradients_reduced(gradients)

    def _updated(self, recorder: Recorder, result: Any) -> None:
        if isinstance(result, tuple) and len(result) >= 2 and result[1] is not None:
            recorder.scalar("grad_norm", float(result[1]))
        states = {id(model): state for model, state in optimizer_states(self.optimizer)}
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
        recorder.parameters_updated(entries)

    def _updated_part(self, parameter: Parameter, part: tuple[int, int] | None) -> torch.Tensor | None:
        """All of this rank's parameter, or the part that it has before gathering."""
        if id(parameter.object) not in self._gathered:
            return parameter.tensor
        return None if part is None else parameter.tensor.view(-1)[part[0] : part[1]]


def record_data(recorder: Recorder, args: tuple, kwargs: Mapping[str, Any]) -> None:
    """Records tokens and labels of the micro-batch."""
    named = {**dict(zip(("input_ids", "position_ids"), args)), **kwargs}
    for name in ("input_ids", "labels"):
        tensor = named.get(name)
        if isinstance(tensor, torch.Tensor):
            recorder.data(name, tensor)


def make(
    chunks: Sequence[torch.nn.Module], optimizer: Any, describe: Mapping[str, Any], **options: Any
) -> Program:
    return MegatronProgram(chunks, optimizer, describe, **options)
