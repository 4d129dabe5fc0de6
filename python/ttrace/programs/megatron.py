"""Megatron-core: models built of its layers, in its DistributedDataParallel, with its optimizers.

Nobody annotates anything by hand. ``sharded_state_dict`` says where parameters lie; its entries are matched
with parameters by their memory. The class of a module and its configuration say where activations lie. Layer
and expert numbers are made global. Micro-batches are the forwards of a chunk within a step. Main gradients
and optimizer shards are read where the optimizer keeps them.

Which token every row of an expert's tensors is follows from the routers' maps (megatron_experts.py). A module
that runs within another one than its parent is recorded by the name that it has there: the embedding that
multi-token prediction calls is ``mtp.layers.0.embedding``, because a pipeline's last stage has one of its own.

Some modules are not traced, because others have the same tensors: identities, blocks of stages that are not the
last (their output is that of their last layer), and the container of a layer's experts.

Options of `ttrace.attach`:
    vocab_size: true size of the vocabulary, if some layouts pad it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ..base.buffers import kept_buffers
from ..base.calls import Removable, after_call, aside, before_outermost_call
from ..base.local_part import local_part
from ..base.loss_scale import loss_scale_of
from ..base.names import traced_modules
from ..base.program import Program
from ..base.quantised import readable
from ..base.recorder import Recorder
from ..base.scalers import Scalers
from ..base.states import LEARNING_RATE, MOMENTS, NEXT_LEARNING_RATE, further_states, number
from ..base.trees import tensors_of
from ..base.values import (
    Buffer,
    Description,
    Dims,
    Gradient,
    OptimizerState,
    Parameter,
    Rows,
    Site,
    Untraced,
    in_fp8,
    precision_of,
)
from .megatron_activations import Activations, is_left_out, is_rotary_table
from .megatron_chunks import Chunk, layout_of, unwrap
from .megatron_experts import ExpertRows, are_traced, expert_dims, is_within_expert, layer_of
from .megatron_optimizer import (
    distributed_parameters,
    flat_ranges,
    gathering_groups,
    learning_rates,
    optimizer_states,
    scalers_of,
)
from .megatron_parameters import parameter_dims
from .megatron_routing import is_router, watch_routing
from .parallel_layers import SHARED

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
    "mtp_num_layers",
    "q_lora_rank",
    "kv_lora_rank",
)


def recognises(chunks: Sequence[Any]) -> bool:
    """Whether this is a Megatron-core model; does not import it."""
    module = sys.modules.get("megatron.core.transformer.module")
    return module is not None and all(
        isinstance(chunk, torch.nn.Module) and isinstance(unwrap(chunk), module.MegatronModule)
        for chunk in chunks
    )


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
        self._scalers = Scalers()
        self.describe = describe
        self.vocab_size = vocab_size
        self.layout = layout_of(self.chunks[0])
        self._activations = Activations(self.config, self.layout)
        self._experts = dict(self._traced_experts())  # by path of their layer
        self._loss_scale = loss_scale_of(optimizer)
        # Gradients of FP16 are final once the optimizer has divided them by the scale of the loss.
        self._unscales = bool(getattr(self.config, "fp16", False)) and hasattr(optimizer, "prepare_grads")
        self._reduced = self._stepped = False
        self._followers: list[Callable[[], None]] = []  # of the optimizer's steps
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
        if self.layout.size("ep") > 1:
            # Tokens of several micro-batches meet in an expert.
            patterns.append(r"param_grad/.*\.local_experts\.")
        if getattr(self.config, "gradient_accumulation_fusion", False):
            patterns.append(r"/param_grad/")  # autograd never sees them
        return patterns

    def parameters(self) -> list[Parameter]:
        return self._parameters

    def _parameters_of(self, chunk: Chunk) -> Iterator[Parameter]:
        dims_of = parameter_dims(chunk, self.layout, self.vocab_size)
        for name, parameter in chunk.model.named_parameters():
            path = chunk.path_of(name)
            if path == "output_layer.weight" and chunk.has_spare_output_weight:
                continue
            is_tied = bool(getattr(parameter, "shared_embedding", False)) or (
                getattr(parameter, "shared", False) and path == "output_layer.weight"
            )
            if is_tied and self.layout.size("pp") > 1:
                path = _TIED
            dims = dims_of(name, parameter, is_tied and self.layout.size("pp") > 1)
            yield Parameter(path, readable(parameter), dims, parameter)

    def sites(self) -> list[Site]:
        result = []
        for number, chunk in enumerate(self.chunks):
            for name, module in traced_modules(chunk.model):
                path = chunk.path_of(name)
                is_table = number > 0 and is_rotary_table(module)  # all chunks have the first one's
                if not name or is_left_out(name, module) or is_table:
                    continue
                if not is_within_expert(path) or layer_of(path) in self._experts:
                    result.append(Site(path, module))
        return result

    def _traced_experts(self) -> Iterator[tuple[str, ExpertRows]]:
        for chunk in self.chunks:
            for name, module in traced_modules(chunk.model):
                dispatcher = getattr(module, "token_dispatcher", None)
                if dispatcher is not None and are_traced(self.config, dispatcher):
                    yield chunk.path_of(name), ExpertRows(self.layout, self.config, dispatcher)

    def path_of_call(self, path: str, caller: str, called_as: str) -> str:
        return called_as + (path[len(caller) :] if path.startswith(caller + ".") else "." + path)

    def placement(
        self, site: Site, role: str, slot: int, tensor: torch.Tensor, inside: torch.Tensor | None
    ) -> Dims | Rows | Untraced | None:
        del inside
        if is_within_expert(site.path):
            gated = bool(getattr(self.config, "gated_linear_unit", False)) and site.path.endswith("linear_fc1")
            dims = expert_dims(site.module, role, tensor, self.layout, gated)
            return self._experts[layer_of(site.path)].rows(site.path, dims)
        return self._activations.place(site, role, slot, tensor)

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
            yield from before_outermost_call(chunk.model, self._forward_begins(recorder, chunk))
            yield after_call(chunk.model, self._forward_ends(recorder, chunk))
            for name, module in traced_modules(chunk.model):
                rows = self._experts.get(chunk.path_of(name).rpartition(".")[0])
                if rows is not None and is_router(module):
                    yield after_call(module, self._routed(chunk, rows))

    @staticmethod
    def _routed(chunk: Chunk, rows: ExpertRows) -> Callable[..., None]:
        def routed(module: torch.nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
            del module
            given = next(tensors_of((args, kwargs)))
            rows.routed(output[1], tuple(given.shape), chunk.microbatch)

        return routed

    def gathered_later(self) -> list[str]:
        return [parameter.path for parameter in self._parameters if id(parameter.object) in self._gathered]

    def refresh_masters(self) -> None:
        if self.optimizer is not None:
            self.optimizer.reload_model_params()

    def step_begins(self, recorder: Recorder) -> None:
        self._reduced = self._stepped = False
        self._scalers.forget()
        for scaler in scalers_of(self.optimizer):
            self._scalers.note(scaler)
        for chunk in self.chunks:
            chunk.forwards = 0
        for rows in self._experts.values():
            rows.step_begins()
        finalize = self.config.finalize_model_grads_func
        if finalize is None or getattr(finalize, "_ttrace", False):
            return

        def finalized(*args: Any, **kwargs: Any) -> Any:
            result = finalize(*args, **kwargs)
            if not self._unscales:
                self._gradients_are_final(recorder)
            return result

        finalized._ttrace = True  # type: ignore[attr-defined]
        for chunk in self.chunks:
            chunk.config.finalize_model_grads_func = finalized

    def _forward_begins(self, recorder: Recorder, chunk: Chunk) -> Callable[..., None]:
        def begins(args: tuple, kwargs: dict) -> None:
            if not torch.is_grad_enabled():
                return
            dp = self.layout.size("dp")
            chunk.microbatch = chunk.forwards * dp + self.layout.coordinate("dp")
            chunk.forwards += 1
            if recorder.microbatch(chunk.microbatch, self._gradient_scale()):
                record_data(recorder, args, kwargs)
            if not chunk.pre_process:
                self._receive(recorder, chunk)

        return begins

    def _gradient_scale(self) -> float:
        """Gradients are averages over data- and context-parallel ranks, unless the loss is one per token."""
        per_token = getattr(self.config, "calculate_per_token_loss", False)
        ranks = 1 if per_token else self.layout.size("dp") * self.layout.size("cp")
        return 1.0 / (ranks * self._loss_scale())

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

        prepare = getattr(self.optimizer, "prepare_grads", None)

        def prepared(*args: Any, **kwargs: Any) -> Any:
            result = prepare(*args, **kwargs)
            self._gradients_are_final(recorder)
            return result

        def stepped(*args: Any, **kwargs: Any) -> Any:
            if recorder.in_step and not self._reduced and not self._unscales:
                self._gradients_are_final(recorder)
            result = step(*args, **kwargs)
            if recorder.in_step:
                self._updated(recorder, result)
            for done in self._followers:
                done()
            return result

        self.optimizer.step = stepped
        if self._unscales:
            self.optimizer.prepare_grads = prepared

    def after_updates(self, done: Callable[[], None]) -> bool:
        """Its optimizers are none of torch, and may be chained."""
        self._followers.append(aside(done))
        return self.optimizer is not None

    # --- gradients and the optimizer ---------------------------------------------------------------

    def _gradients_are_final(self, recorder: Recorder) -> None:
        if not recorder.in_step or self._reduced:
            return
        self._reduced = True
        ranges = {id(parameter): part for parameter, part in flat_ranges(self.optimizer)}
        unscaled = dict(self._unscaled_gradients()) if self._unscales else {}
        gradients = []
        for parameter in self._parameters:
            if id(parameter.object) in unscaled:
                gradients.append(Gradient(parameter.path, *unscaled[id(parameter.object)]))
                continue
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

    def _unscaled_gradients(self) -> Iterator[tuple[int, tuple[torch.Tensor, int]]]:
        """By id of the parameter, of masters: gradient and first element of the range that it is of."""
        for parameter, (master, _, part) in optimizer_states(self.optimizer):
            if master is not None and master.grad is not None:
                yield id(parameter), (master.grad, -1 if part is None else part[0])

    def _updated(self, recorder: Recorder, result: Any) -> None:
        if isinstance(result, tuple) and len(result) >= 2 and result[1] is not None:
            recorder.scalar("grad_norm", float(result[1]))
        self._stepped = True
        states = {id(model): state for model, state in optimizer_states(self.optimizer)}
        rates = learning_rates(self.optimizer)
        entries = []
        for parameter in self._parameters:
            state = states.get(id(parameter.object))
            master, moments, part = state if state else (None, {}, None)
            rate = rates.get(id(parameter.object))
            others = {} if rate is None else {LEARNING_RATE: number(rate)}
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
                    others,
                )
            )
        recorder.parameters_updated(entries)

    def step_ends(self, recorder: Recorder) -> None:
        if self._stepped:
            recorder.parameters_updated(list(self._kept_states()))

    def _kept_states(self) -> Iterator[OptimizerState]:
        """What the optimizer and its scheduler have left for the next step."""
        states = {id(model): state for model, state in optimizer_states(self.optimizer)}
        rates = learning_rates(self.optimizer)
        for parameter in self._parameters:
            _, kept, part = states.get(id(parameter.object), (None, {}, None))
            others, left_out = further_states(kept)
            if id(parameter.object) in rates:
                others[NEXT_LEARNING_RATE] = number(rates[id(parameter.object)])
            first = -1 if part is None else part[0]
            yield OptimizerState(parameter.path, flat_first=first, others=others, left_out=left_out)
        yield from self._scalers.states()

    def states_before(self) -> list[OptimizerState]:
        states = {id(model): state for model, state in optimizer_states(self.optimizer)}
        found = list(self._kept_states())
        for parameter in self._parameters:
            master, kept, part = states.get(id(parameter.object), (None, {}, None))
            moments = {name: kept[name] for name in MOMENTS if name in kept}
            if moments:  # else the optimizer has made no step, and the master is the parameter
                first = -1 if part is None else part[0]
                master = None if parameter.tensor.dtype in (torch.float32, torch.float64) else master
                found.append(OptimizerState(parameter.path, None, master, **moments, flat_first=first))
        return found

    def buffers(self) -> list[Buffer]:
        return [
            Buffer(chunk.path_of(name), local_part(buffer))
            for chunk in self.chunks
            for name, buffer in kept_buffers(chunk.model)
        ]

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
