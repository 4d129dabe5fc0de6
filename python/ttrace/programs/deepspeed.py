"""Programs of DeepSpeed: an engine of `deepspeed.initialize`, with ZeRO 0, 1, 2 or 3, in F32 or BF16.

Ranks that the engine averages gradients over are the axis `dp`; if it divides sequences among ranks, these are the
axis `sp`. Within the engine is a plain model, whose activations lie as those of DistributedDataParallel do. Reduced
gradients, masters and moments are read where the engine keeps them (`deepspeed_state`): gradients when the engine
begins the step that applies them, before it clips, and everything else when that step is done and the ranks have
gathered what they updated.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ..base.calls import Removable
from ..base.optimizers import Optimizers
from ..base.recorder import Recorder
from ..base.unseen import unseen
from ..base.values import Dims
from .deepspeed_state import EngineState, is_partitioned
from .divided import DividedProgram
from .dims_text import addends_text, dims_text, scalar_text
from .steps_of_optimizer import norm_of_gradients


def _class(module: str, name: str) -> type | None:
    """Without importing it: a program that has such an object has imported it."""
    return getattr(sys.modules.get(module), name, None)


def recognises(chunks: Sequence[Any]) -> bool:
    """Whether this is one engine. Raises TypeError for a model that an engine has taken, without its engine."""
    engine = _class("deepspeed.runtime.engine", "DeepSpeedEngine")
    if engine is None or len(chunks) != 1:
        return False
    if isinstance(chunks[0], engine):
        return True
    parameters = chunks[0].parameters() if isinstance(chunks[0], torch.nn.Module) else ()
    if any(is_partitioned(p) or hasattr(p, "_hp_mapping") for p in parameters):
        raise TypeError(
            f"ttrace.attach got the {type(chunks[0]).__name__} within a DeepSpeed engine, which keeps gradients and "
            "states elsewhere; pass the engine that deepspeed.initialize returned"
        )
    return False


def _unsupported(engine: Any) -> str:
    """What of this engine TTrace cannot follow, and the remedy; empty if it can."""
    hybrid = _class("deepspeed.runtime.hybrid_engine", "DeepSpeedHybridEngine")
    config = engine._config
    refused = {
        "a DeepSpeedHybridEngine; turn hybrid_engine off": hybrid is not None and isinstance(engine, hybrid),
        "an engine in FP16; set bf16, or neither": engine.fp16_enabled(),
        "an engine with DeepSpeed's experts (MoE); trace the model without them": engine.has_moe_layers,
        "an engine with tensor parallelism of its own; set it to 1": _tensor_parallel(engine) > 1,
        "an engine that compiles its passes (DeepCompile); turn compile off": _is(engine, "is_deepcompile_active"),
        "an engine with ZenFlow; turn zenflow off": bool(getattr(engine, "zenflow", False)),
        "an engine whose optimizer reduces gradients itself (1-bit); use a plain optimizer":
            not engine.enable_backward_allreduce and not is_pipeline(engine),  # which calls that itself
        "an engine with zero_hpz_partition_size; set it to 1": _number(engine, "zero_hpz_partition_size") > 1,
        "an engine with quantized weights or gradients of ZeRO++; turn them off":
            _is(engine, "zero_quantized_weights") or _is(engine, "zero_quantized_gradients"),
        "an engine that offloads to NVMe; offload to the CPU": _offloads_to_nvme(config),
    }  # fmt: skip
    return next((sentence for sentence, applies in refused.items() if applies), "")


def _is(engine: Any, question: str) -> bool:
    return bool(getattr(engine, question, lambda: False)())


def is_pipeline(engine: Any) -> bool:
    pipeline = _class("deepspeed.runtime.pipe.engine", "PipelineEngine")
    return pipeline is not None and isinstance(engine, pipeline)


def _tensor_parallel(engine: Any) -> int:
    """Ranks that share a layer. For a PipelineEngine stages count as parts of a model as well."""
    return engine.grid.get_slice_parallel_world_size() if is_pipeline(engine) else _size(engine, "mp_world_size")


def _number(engine: Any, question: str) -> int:
    return int(getattr(engine, question, lambda: 1)() or 1)


def _size(engine: Any, name: str) -> int:
    return int(getattr(engine, name, 1) or 1)


def _offloads_to_nvme(config: Any) -> bool:
    zero = config.zero_config
    parts = (getattr(zero, "offload_optimizer", None), getattr(zero, "offload_param", None))
    return any(part is not None and getattr(part.device, "value", part.device) == "nvme" for part in parts)


class DeepSpeedProgram(DividedProgram):
    """See the head of this file. The optimizer is the engine's, whatever is passed to `ttrace.attach`.

    Options of `ttrace.attach`: batch_dim, loss, as for plain modules.
    """

    def __init__(self, engine: Any, describe: Mapping[str, Any], **options: Any):
        refused = _unsupported(engine)
        if refused:
            raise TypeError(f"ttrace.attach got {refused}, because TTrace cannot follow it")
        super().__init__(engine.module, None, describe, **options)
        self.optimizers = Optimizers(getattr(engine, "basic_optimizer", None))
        self._engine = engine
        self._add_axes()
        self.divide(EngineState(engine))

    def _add_axes(self) -> None:
        shared = _size(self._engine, "sequence_parallel_size")  # by so many ranks in a row
        if shared == 1:
            self.layout.add("dp", *_place(self._engine.data_parallel_group))
            return
        self.layout.add("dp", self.layout.world_size // shared, self.layout.rank // shared)
        self.layout.add("sp", shared, self.layout.rank % shared)

    # --- ranks that share the positions of a sample: the engine adds up their gradients --------------

    def _shares_positions(self) -> bool:
        return self.layout.size("sp") > 1

    def parameter_dims(self, parameter: torch.Tensor) -> Dims | None:
        if not self._shares_positions():
            return super().parameter_dims(parameter)
        if parameter.dim() == 0:
            return Dims(scalar_text(), scalar_text([*self.sample_axes(), "sp"]))
        addends = addends_text([*self.sample_axes(), "sp"])
        return Dims(dims_text(parameter.dim(), {}), dims_text(parameter.dim(), {0: addends}))

    def total_dims(self) -> str | None:
        if not self._shares_positions():
            return super().total_dims()
        return f"a[{addends_text([*self.sample_axes(), 'sp'])}]"

    def _shared_batch(self, tensor: torch.Tensor) -> Dims | None:
        """Positions come after the samples; where a tensor has others there, its values say where it lies."""
        dims = tensor.dim()
        if not self._shares_positions() or dims <= self.batch_dim + 1:
            return super()._shared_batch(tensor)
        data = {self.batch_dim: "dp"} if self.sample_axes() else {}
        return Dims("? " + dims_text(dims, {**data, self.batch_dim + 1: "sp"}))

    # --- when things happen ------------------------------------------------------------------------

    def watch(self, recorder: Recorder) -> None:
        self._gradients: Any = _StepsOfEngine(recorder, self._engine, self)

    def after_updates(self, done: Callable[[], None]) -> bool:
        self._gradients.followers.append(done)
        return True


def _place(group: Any) -> tuple[int, int]:
    return torch.distributed.get_world_size(group), torch.distributed.get_rank(group)


class _StepsOfEngine:
    """Records gradients when the engine begins the step that applies them, and parameters when it is done."""

    def __init__(self, recorder: Recorder, engine: Any, program: DeepSpeedProgram):
        self._recorder = recorder
        self._engine = engine
        self._program = program
        self._stepped = False
        self.followers: list[Callable[[], None]] = []
        # What engine.step() calls once all micro-batches are accumulated and reduced, and only then.
        self._own = engine._take_model_step
        engine._take_model_step = self._step

    def hooks(self) -> Iterator[Removable]:
        """None that exist only while a step is traced."""
        yield from ()

    def _step(self, *args: Any, **kwargs: Any) -> None:
        is_traced = self._recorder.in_step
        norm: float | None = None
        rates: dict[str, float] = {}
        if is_traced:
            with unseen():
                rates = self._program.learning_rates()  # the engine steps its scheduler, too
                self._recorder.gradients_reduced(self._program.gradients())
                if not is_pipeline(self._engine):  # whose ranks have other parameters
                    norm = norm_of_gradients(list(self._program.model.parameters()))
        self._own(*args, **kwargs)
        if is_traced:
            with unseen():
                kept = self._engine.get_global_grad_norm()  # None: of whole gradients, whose norm nobody keeps
                norm = norm if kept is None else float(kept)
                if norm is not None and self._engine.gradient_clipping() > 0:
                    self._recorder.scalar("grad_norm", norm)
                self._recorder.parameters_updated(self._program.states(rates))
                self._stepped = True
        for done in self.followers:
            done()

    def step_ends(self) -> None:
        if self._stepped:
            with unseen():
                states = self._program.kept_states()
            self._recorder.parameters_updated(states)
        self._stepped = False
