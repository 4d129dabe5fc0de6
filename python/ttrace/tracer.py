"""What `attach` returns: the session of one traced training program."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from ._library import library_path
from .base import compiled, operator_sites, quantised, simulated
from .base.call_site import call_site
from .base.calls import aside
from .base.local_part import held, is_wrapped, local_part, settled
from .base.copies import Copies
from .base.program import Program
from .base.recorder import DimsOf
from .base.sources import sources_of
from .base.states import before_step
from .base.ties import refuse_broken_ties, write_ties
from .base.trees import tensors_of
from .base.unseen import unseen
from .base.values import Buffer, Gradient, OptimizerState, Parameter, whole
from .module_hooks import CALLS_ITSELF, ModuleHooks
from .programs.expert_choices import choose_unseen


_TOO_LATE = (
    "a forward of the step ran after gradients were clipped or an optimizer stepped: neither that forward nor what it adds to "
    "the gradients is compared"
)


class TracedStep:
    """One iteration, as `Tracer.step` yields it. Inert if the iteration is not traced."""

    def __init__(self, tracer: Tracer | None):
        self._tracer = tracer

    def loss(self, per_token: torch.Tensor) -> None:
        """Records the loss of the current micro-batch, before any averaging (any shape), and its gradient.

        Only models that do not return their loss need this call.
        """
        if self._tracer is not None:
            self._tracer.loss(per_token)

    def data(self, name: str, tensor: torch.Tensor) -> None:
        """Records an input of the current micro-batch (any shape and type), which is compared exactly."""
        if self._tracer is not None:
            self._tracer.data(name, tensor)

    def scalar(self, name: str, value: float) -> None:
        """Records a number of the step, such as the gradients' norm."""
        if self._tracer is not None:
            self._tracer.scalar(name, value)


class Tracer:
    """Traces the steps that TTRACE_STEPS asks for. Made by `ttrace.attach`, one per process."""

    def __init__(
        self,
        session: Any,
        program: Program | None,
        annotations: str | Path | None = None,
        placements: str = "derived",
        untraced: Sequence[str] = (),
        note: str = "",
        copies: Mapping[str, Any] | None = None,
    ):
        self._session = session
        self._program: Any = program
        self._derives = placements == "derived"
        self._step: Any = None
        self._microbatches: dict[int, Any] = {}
        self._current: Any = None
        self._is_reduced = False  # the gradients of the current step are final
        self._scalars: set[str] = set()  # of the current step; the first of a name counts
        self._hooks: Any = None
        self._called: set[str] = set()  # paths in this step
        self._quantised: list[Parameter] = []
        self._sources: dict[str, str] = {}  # where the code of modules stands, by path
        self._notes: list[str] = []  # what every step's report says of compiled modules
        self._copies = Copies(copies or {}, program.parameters() if program else [])
        if program is not None:
            self._attach(program, annotations, untraced)
            self._notes += [note] if note else []
            atexit.register(self._abandon)

    @property
    def active(self) -> bool:
        """Whether this process is traced at all."""
        return self._program is not None

    @property
    def in_step(self) -> bool:
        return self._step is not None

    @property
    def replaces_values(self) -> bool:
        return self._step is not None and self._step.replaces_values()

    @property
    def in_microbatch(self) -> bool:
        return self._current is not None

    @property
    def module_calls(self) -> int:
        """How many calls of modules were traced so far."""
        return self._hooks.calls if self._hooks else 0

    @contextlib.contextmanager
    def step(self, iteration: int) -> Iterator[TracedStep]:
        """Wraps one iteration, from the first forward to the optimizer's step."""
        if not self.active or not self._begin(iteration):
            yield TracedStep(None)
            return
        try:
            yield TracedStep(self)
        except BaseException as error:
            self._end(f"the training program raised {type(error).__name__} within the traced step: {error}")
            raise
        self._end(None)

    def follow(self, optimizer: Any) -> None:
        """Every iteration ends when the optimizer's step is done, and the next one begins."""
        if not self.active:
            return
        iteration = 0

        def done(*unused: Any) -> None:
            nonlocal iteration
            if self.in_step:
                self._end(None)
            iteration += 1
            self._begin(iteration)

        if not self._program.after_updates(done):
            if not isinstance(optimizer, torch.optim.Optimizer):
                raise TypeError(
                    f'steps="optimizer" got a {type(optimizer).__name__}; pass a torch.optim.Optimizer, or wrap '
                    "every iteration in tracer.step()"
                )
            optimizer.register_step_post_hook(aside(done))
        self._begin(iteration)

    def not_seen(self, kind: str, sentence: str) -> None:
        """States what this run does that TTrace does not look at. Within a traced step it counts for that step, else
        for all later ones. Kinds: updates, state, start, random, parallel, later, values, samples, gradients."""
        if self.active:
            self._session.not_seen(kind, sentence)

    def watch_loss(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """`compute`, which from now on records the first tensor that it returns as the loss of the current
        micro-batch. For programs that compute their loss in a function of their own, such as a Trainer's."""
        if not self.active:
            return compute

        @functools.wraps(compute)
        def watched(*args: Any, **kwargs: Any) -> Any:
            result = compute(*args, **kwargs)
            loss = next(tensors_of(result), None)
            if loss is not None and self.in_microbatch:  # else a pipeline finds out shapes
                self.loss(loss)
            return result

        return watched

    # --- what programs call: see Recorder. Outside of a traced step nothing happens -------------------

    def microbatch(self, index: int, gradient_scale: float = 1.0) -> bool:
        if self._step is None:
            return False
        known = self._microbatches.get(index)
        if known is not None:
            known.resume()
        else:
            self._microbatches[index] = self._step.microbatch(index, gradient_scale)
        self._current = self._microbatches[index]
        return known is None

    def data(self, name: str, tensor: torch.Tensor) -> None:
        if self._step is None:
            return
        microbatch = self._current_microbatch("data")
        self._place_data(name, "data", tensor)
        microbatch.data(name, local_part(tensor))

    def loss(self, per_token: torch.Tensor) -> None:
        if self._step is None:
            return
        microbatch = self._current_microbatch("loss")
        self.called("loss")
        with unseen(), torch.no_grad():
            if per_token.dim() == 0:  # one number, to which other ranks may add theirs
                per_token = self._program.addend_of_loss(held(per_token.detach()).reshape(1))
            parts = settled(per_token)
        self._place_data("loss", "value", parts)
        if is_wrapped(per_token):
            raise TypeError(f"loss got a {type(per_token).__name__}, whose elements lie in other tensors; pass a plain one")
        if isinstance(per_token, DTensor) or simulated.is_simulated(per_token):
            microbatch.resume()
            self._hooks.loss(per_token, parts)
        else:
            microbatch.loss(per_token)

    def sent(self, path: str, tensor: torch.Tensor, slot: int = 0) -> None:
        if self._current is not None:
            self._current.sent(path, tensor, slot)

    def derive(self, path: str, field: str, slot: int, dims: str) -> None:
        if self._derives:
            self._session.derive(path, field, slot, dims)

    def received(self, path: str, tensor: torch.Tensor, slot: int = 0) -> None:
        if self._current is not None:
            self._current.received(path, tensor, slot)

    def routing(
        self, choices: torch.Tensor, margins: torch.Tensor, dims: DimsOf | None = None
    ) -> torch.Tensor:
        return self._hooks.routing(choices, margins, dims) if self._step is not None else choices

    def scalar(self, name: str, value: float) -> None:
        if self._step is not None and name not in self._scalars:
            self._scalars.add(name)
            self._step.scalar(name, float(value))

    def note(self, sentence: str) -> None:
        self._step.note(sentence)

    def called(self, path: str) -> None:
        """Notes which line of the program calls this module, or function, first."""
        if self._is_reduced and self._step is not None and torch.is_grad_enabled():
            self._is_reduced = False
            self.not_seen("gradients", _TOO_LATE)
        if self._step is not None and path not in self._called:
            self._called.add(path)
            self._step.called_at(path, call_site(sys._getframe(1)))

    def parameters_gathered(self, paths: Sequence[str]) -> None:
        if self._step is not None:
            self._step.parameters_gathered(list(paths))

    def gradients_reduced(self, gradients: Sequence[Gradient]) -> None:
        if self._step is None:
            return
        self.called("optimizer")
        self._is_reduced = True
        self._step.gradients_reduced(
            [gradient.path for gradient in gradients],
            [gradient.tensor for gradient in gradients],
            [gradient.flat_first for gradient in gradients],
        )

    def parameters_updated(self, states: Sequence[OptimizerState]) -> None:
        if self._step is None:
            return
        self._read_quantised()
        self._derive_states(states)
        for name, count in Counter(name for state in states for name in state.left_out).items():
            self.not_seen(
                "state",
                f"`{name}`, which the optimizer keeps of {count} parameters, holds no numbers that can be compared",
            )
        self._step.parameters_updated(
            [state.path for state in states],
            [state.param for state in states],
            [state.master for state in states],
            [state.exp_avg for state in states],
            [state.exp_avg_sq for state in states],
            [state.flat_first for state in states],
            [list(state.others) for state in states],
            [list(state.others.values()) for state in states],
        )

    # --- setting up --------------------------------------------------------------------------------

    def _attach(self, program: Program, annotations: str | Path | None, untraced: Sequence[str]) -> None:
        description = program.description()
        parameters = program.parameters()
        _refuse_unreadable(parameters)
        sites = program.sites()
        layout = program.layout
        opaque = {site.path: site.module for site in sites if compiled.hides_modules(site.module)}
        are_stages = layout.size("pp") > 1
        roles = dict(description.roles)
        hidden: list[str] = []
        if opaque:
            hidden = [compiled.hidden_ids(list(opaque), are_stages)]
            self._notes = [compiled.sentence(list(opaque))]
        if choosing := choose_unseen(list(opaque.items())):
            roles["hidden_choices"] = compiled.patterns(choosing, are_stages)
            self._notes.append(compiled.sentence_on_choices(choosing))
        self._session.describe(
            description.model,
            description.data,
            {**description.versions, **self._undeclared(annotations), **_versions()},
            description.precision,
            [*description.untraced, *hidden, *untraced],
        )
        self._sources = sources_of(sites)
        self._session.set_layout(
            layout.rank,
            layout.world_size,
            layout.axes_of(layout.rank),
        )
        simulated.simulate(self._session, layout)
        self._session.set_annotations(
            Path(annotations).read_text(encoding="utf-8") if annotations else "",
            str(annotations or "annotations"),
            list(_derivations(parameters)),
            list(roles.items()),
        )
        self._session.attach(
            [parameter.path for parameter in parameters],
            [parameter.tensor for parameter in parameters],
            [site.path for site in sites],
        )
        self._quantised = [entry for entry in parameters if quantised.is_quantised(entry.object)]
        _look_at_ties(program, parameters)
        if self._session.load_parameters():
            with torch.no_grad():
                for entry in self._quantised:
                    entry.object.copy_(entry.tensor)
            program.refresh_masters()
        if not self._derives:
            self._forget(parameters)
        self._hooks = ModuleHooks(program, sites, torch.classes.ttrace.Scopes(), self.derive, _calls_itself())
        program.watch(self)

    def _undeclared(self, annotations: str | Path | None) -> dict[str, str]:
        """A mark for `ttrace infer`: nobody claimed that these tensors are whole."""
        return {} if self._derives or annotations else {"placements": "none"}

    def _forget(self, parameters: Sequence[Parameter]) -> None:
        """Loading needed the placements of parameters; they are not recorded."""
        for parameter in parameters:
            dims = " ".join("acdefgh"[: parameter.tensor.dim()])
            if dims and parameter.dims is not None:
                self._session.derive(parameter.path, "value", 0, dims)
                self._session.derive(parameter.path, "grad", 0, dims)

    # --- steps -------------------------------------------------------------------------------------

    def _begin(self, iteration: int) -> bool:
        self._read_quantised()
        step = self._session.step(iteration, self._program.gathered_later())
        if not step.traced():
            return False
        self._step = step
        self._is_reduced = False
        self._called.clear()
        for note in self._notes:
            step.note(note)
        for path, line in self._sources.items():
            step.source(path, line)
        self._hooks.install(self)
        if operator_sites.are_asked():
            operator_sites.install(library_path())
        self._program.step_begins(self)
        if iteration > 0:
            self._record_before()
        return True

    def _end(self, failure: str | None) -> None:
        try:
            if failure is None:
                self._program.step_ends(self)
                self._record_kept()
        finally:
            self._hooks.remove()
            if operator_sites.are_asked():
                operator_sites.remove(library_path())
            for microbatch in self._microbatches.values():
                microbatch.end()
            self._microbatches.clear()
            self._scalars.clear()
            self._current = None
            step, self._step = self._step, None
            if failure is not None:
                step.fail(failure)
            step.end()

    def _record_before(self) -> None:
        """What training has kept of the steps before. The library records it in the first traced step."""
        with unseen(), torch.no_grad():
            states = self._program.states_before()
            buffers = self._program.buffers()
        kept = [before_step(state) for state in states]
        self._derive_states(states)
        self._derive_buffers(buffers)
        self._step.states_before(
            [state.path for state in states],
            [state.flat_first for state in states],
            [list(parts) for parts in kept],
            [list(parts.values()) for parts in kept],
            [buffer.path for buffer in buffers],
            [buffer.tensor for buffer in buffers],
        )

    def _derive_states(self, states: Sequence[OptimizerState]) -> None:
        for state in states:
            for name, dims in state.dims.items():
                self.derive(f"{state.path}.{name}", "value", 0, dims)

    def _derive_buffers(self, buffers: Sequence[Buffer]) -> None:
        for buffer in buffers:
            if buffer.dims is not None:
                self.derive(buffer.path, "value", 0, buffer.dims)

    def _record_kept(self) -> None:
        """What the program keeps from step to step, when nothing of the step runs any more."""
        with unseen(), torch.no_grad():
            copies = list(self._copies.parts())
            tensors = self._program.parts_of_copies([tensor for _, _, tensor in copies])
            buffers = self._program.buffers()
        self._step.copies_updated([path for path, _, _ in copies], [name for _, name, _ in copies], tensors)
        self._derive_buffers(buffers)
        self._step.buffers([buffer.path for buffer in buffers], [buffer.tensor for buffer in buffers])

    def _abandon(self) -> None:
        """Loops that are not the program's own may leave a step open: what it has is not the whole step."""
        if not self.in_step:
            return
        what = "within the traced step" if self._microbatches else "before the traced step ran a forward"
        self._end(f"the training program ended {what}")

    def _read_quantised(self) -> None:
        """Parameters of FP8 codes are recorded as what the codes stand for now."""
        for entry in self._quantised:
            entry.tensor.copy_(quantised.dequantised(entry.object))

    def _current_microbatch(self, what: str) -> Any:
        if self._current is None:
            raise RuntimeError(
                f"{what} was recorded before the model's first forward in this step, so it belongs to no "
                "micro-batch; record it after that forward has begun"
            )
        return self._current

    def _place_data(self, name: str, field: str, tensor: torch.Tensor) -> None:
        with unseen():
            dims = self._program.data_dims(name, tensor)
        if dims is not None:
            self.derive(name, field, 0, dims)


def _derivations(parameters: Sequence[Parameter]) -> Iterator[tuple[str, str, int, str]]:
    for parameter in parameters:
        dims = parameter.dims or whole(parameter.tensor)
        if dims is not None:
            yield parameter.path, "value", 0, dims.value
            yield parameter.path, "grad", 0, dims.grad or dims.value


def _refuse_unreadable(parameters: Sequence[Parameter]) -> None:
    for entry in parameters:
        if is_wrapped(entry.tensor):
            raise TypeError(
                f"ttrace.attach cannot read the parameter {entry.path}, a {type(entry.tensor).__name__}, whose elements "
                "lie in other tensors; give the class a method dequantize() that returns them as a plain tensor, or "
                "convert the model after the comparison"
            )


def _look_at_ties(program: Program, parameters: Sequence[Parameter]) -> None:
    """Writes those of this program, and refuses one that has broken the reference's."""
    asked = os.environ.get
    if asked("TTRACE_PASS") in ("reference", "candidate") and program.layout.rank == 0 and not asked("TTRACE_COUNT"):
        write_ties(asked("TTRACE_DIR", ""), program.ties())
    if asked("TTRACE_REFERENCE") and asked("TTRACE_START", "reference") == "reference":
        refuse_broken_ties(asked("TTRACE_REFERENCE", ""), [parameter.path for parameter in parameters])


def _calls_itself() -> bool:
    """Whether the reference's model calls itself, as far as this pass needs to know."""
    reference = os.environ.get("TTRACE_REFERENCE", "")
    if os.environ.get("TTRACE_PASS") != "forced" or not reference:
        return False
    return CALLS_ITSELF in torch.classes.ttrace.StoredTrace(reference, False).notes()


def _versions() -> dict[str, str]:
    """What the session cannot find out by itself: of Python, and of NCCL where the program uses CUDA."""
    import platform

    versions = {"python": platform.python_version()}
    if torch.cuda.is_initialized():
        versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return versions
