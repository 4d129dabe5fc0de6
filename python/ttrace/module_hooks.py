"""Hooks on modules hand inputs and outputs to the scopes of the C++ library.

Hooks are per module and see keyword arguments; gradients come by hooks on tensors, which the library
sets itself, so that in-place consumers, views and any structure of outputs work. Nothing is kept of a
call once it is over.

Parallel styles convert what a module is given and what it returns by hooks of their own, which say more
about placements than the plain tensors outside. A program that asks for it also sees the tensors on the
inner side of those hooks.
"""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor

from .base import quantised, regions
from .base.arguments import Slots
from .base.calls import Removable, after_call, aside, before_call, is_compiled_in_place
from .base.local_part import has_same_bits, instead_of, local_part, settled, with_part
from .base.program import Program
from .base.recorder import DimsOf, Recorder
from .base.simulated import is_simulated
from .base.trees import map_tensors, tensors_of
from .base.unseen import unseen
from .base.values import ROOT, Dims, Rows, Site, Untraced

# What a step's notes say of a program whose model calls itself. Passes that replace values read it in the reference's.
CALLS_ITSELF = (
    "the model's forward runs within a call of the model, as if a training step were its forward: the inner call is "
    "compared, and what the outer one takes and returns is not recorded"
)

_FIELDS = {"output": ("value", "grad"), "input": ("inputs", "input_grads"), "loss": ("value", "grad")}


def is_traced(tensor: torch.Tensor) -> bool:
    """Whether this is an activation, and not a mask, a number of tokens or a weight."""
    return (
        tensor.is_floating_point()
        and tensor.dim() > 0
        and not isinstance(tensor, torch.nn.Parameter)
        and not tensor.is_meta
    )


@dataclass
class _Call:
    depth: int  # of its scope
    site: Site
    called: Site  # with the path under which its tensors are recorded
    given: Any = None  # arguments, as the caller passed them
    raw: Any = None  # outputs, as the forward returned them
    # Inputs that a forced pass has replaced, and what they were.
    replaced: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    # Outputs of the modules that it called which a forced pass has replaced, and what they were.
    returned: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    # Of the model itself: records what it was given. Not before it is known that its forward does not call it again.
    waiting: Callable[[], None] | None = None
    taken: set[object] = field(default_factory=set)  # where the tensors lie that it was given
    is_around: bool = False  # of the model itself, whose forward calls it again
    is_part: bool = False  # called while no other module runs, and not the model itself


def _place_of(tensor: torch.Tensor) -> object:
    """Equal for tensors that are views of the same elements."""
    if type(tensor) is not torch.Tensor:
        return id(tensor)
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


class ModuleHooks:
    """Installed only while a step is traced: other steps run as without them."""

    def __init__(
        self,
        program: Program,
        sites: Sequence[Site],
        scopes: Any,
        derive: Callable[[str, str, int, str], None],
        calls_itself: bool = False,
    ):
        self.calls = 0  # of modules
        self._calls_itself = calls_itself  # the model, in the reference
        self._program = program
        self._sites = sites
        self._scopes = scopes
        self._derive = derive
        self._open = threading.local()
        self._placed: dict[tuple[str, str, int], Dims] = {}
        self._installed: list[Removable] = []
        self._regions: dict[str, Site] = {}

    def install(self, recorder: Recorder) -> None:
        keep = self._installed.append
        self._recorder = recorder
        for site in self._sites:
            module = site.module
            # Nothing between a module that is compiled in place and its own hooks can be seen.
            looks_inside = self._program.looks_inside and not is_compiled_in_place(module)
            keep(before_call(module, self._before(site, looks_inside)))
            if looks_inside:
                keep(module.register_forward_pre_hook(aside(self._converted()), with_kwargs=True))
                keep(module.register_forward_hook(aside(self._returned()), prepend=True))
            # It also runs when the forward throws, as it does to stop a recomputation early.
            keep(after_call(module, self._after(site), always=True))
            for buffer in module.buffers(recurse=False):
                self._scopes.given(local_part(buffer))
        self._installed.extend(self._program.hook_models(recorder))
        regions.install(self)

    def remove(self) -> None:
        """Removes all hooks and closes all calls, whatever has thrown."""
        regions.install(None)
        for handle in reversed(self._installed):
            handle.remove()
        self._installed.clear()
        self._open = threading.local()

    def routing(
        self, choices: torch.Tensor, margins: torch.Tensor, dims: DimsOf | None
    ) -> torch.Tensor:
        """Records the innermost running module's choices; returns those to continue with."""
        if not self._calls():
            return choices
        for slot, tensor in enumerate((choices, margins) if dims is not None else ()):
            where = dims("routing", tensor)
            if where is not None:
                self._derive(self._calls()[-1].called.path, "routing", slot, where)
        return self._scopes.routing(local_part(choices), local_part(margins))

    def around(self, name: str, function: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        """Calls a function as if it were a module of this name within the one that runs."""
        inside = self._calls()[-1].site.path if self._calls() else ROOT
        path = name if inside == ROOT else f"{inside}.{name}"
        site = self._regions.setdefault(path, Site(path, torch.nn.Module()))
        site.module.forward = function
        before, after = aside(self._before(site, looks_inside=False)), aside(self._after(site))
        args, kwargs = before(site.module, args, kwargs) or (args, kwargs)
        try:
            output = function(*args, **kwargs)
        except BaseException:
            after(site.module, args, kwargs, None)
            raise
        changed = after(site.module, args, kwargs, output)
        return output if changed is None else changed

    def loss(self, losses: torch.Tensor, parts: torch.Tensor) -> None:
        """Records the loss of the current micro-batch. `parts`: as `settled` leaves it."""
        self._record_local("loss", "loss", 0, losses, parts)

    def _calls(self) -> list[_Call]:
        if not hasattr(self._open, "calls"):
            self._open.calls = []
        return self._open.calls

    def _called(self, site: Site) -> Site:
        calls = self._calls()
        if not calls:
            return site
        path = self._program.path_of_call(site.path, calls[-1].site.path, calls[-1].called.path)
        return site if path == site.path else Site(path, site.module)

    def _before(self, site: Site, looks_inside: bool) -> Callable[..., Any]:
        def before(module: torch.nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
            self.calls += 1
            calls = self._calls()
            is_inner = self._program.is_model(module) and any(call.site is site for call in calls)
            if is_inner:
                self._recorder.note(CALLS_ITSELF)
                for call in calls:  # the inner call is the forward that other programs have, too
                    call.waiting, call.is_around = None, call.is_around or call.site is site
            elif calls:
                self._settle(calls[-1])
            else:
                self._begin(site, args, kwargs)
            if not self._program.is_model(module) and self._recorder.in_microbatch:
                self._program.module_called(self._recorder, site, args, kwargs)
            called = self._called(site)
            self._recorder.called(called.path)
            calls.append(_Call(self._scopes.enter(called.path), site, called))
            calls[-1].is_part = len(calls) == 1 and not self._program.is_model(module)
            # What the module's own hooks have converted cannot be replaced any more. On one rank they say nothing of
            # placements.
            replaces = self._recorder.replaces_values and self._program.layout.world_size == 1
            if looks_inside and not replaces:
                calls[-1].given = (args, kwargs)
                return None
            given = (args, kwargs)
            result = self._give(calls[-1], is_inner, given, None)
            return None if result is given else result

        return before

    def _begin(self, site: Site, args: tuple, kwargs: dict) -> None:
        """The call of a module while no other one runs. Regions outside of the model are no part of it."""
        if self._regions.get(site.path) is not site and not self._program.is_model(site.module):
            self._program.part_called(self._recorder, args, kwargs)

    def _give(self, call: _Call, is_inner: bool, given: Any, inside: Any) -> Any:
        """Records what a module is given, as `_hand_on` does. What the model itself is given waits for the first
        module that it calls: if that is the model, its arguments are recorded. A pass that replaces what the model
        is given cannot wait, and knows from the reference whether the model calls itself."""
        if not self._program.is_model(call.site.module):
            return self._hand_on(call.called, "input", given, inside)

        def record() -> Any:
            self._program.model_called(self._recorder, call.site.module, *given)
            return self._hand_on(call.called, "input", given, inside)

        must_replace = self._recorder.replaces_values and (is_inner or not self._calls_itself)
        if must_replace or next(call.site.module.children(), None) is None:
            return record()
        call.waiting = record
        return given

    @staticmethod
    def _settle(call: _Call) -> None:
        waiting, call.waiting = call.waiting, None
        if waiting is not None:
            waiting()

    def _converted(self) -> Callable[..., Any]:
        def converted(module: torch.nn.Module, args: tuple, kwargs: dict) -> None:
            if self._calls() and self._calls()[-1].given is not None:
                call = self._calls()[-1]
                is_inner = sum(1 for other in self._calls() if other.site.module is module) > 1
                given, call.given = call.given, None
                self._give(call, is_inner, given, (args, kwargs))

        return converted

    def _returned(self) -> Callable[..., Any]:
        def returned(module: torch.nn.Module, args: tuple, output: Any) -> None:
            del module, args
            if self._calls():
                self._calls()[-1].raw = output

        return returned

    def _after(self, site: Site) -> Callable[..., Any]:
        def after(module: torch.nn.Module, args: tuple, kwargs: dict, output: Any) -> Any:
            del module
            if not self._calls():
                return None
            call = self._calls()[-1]
            try:
                self._settle(call)
                if call.is_part:
                    self._program.part_returned(output)
                self._record_fp8(quantised.of_forward(site.module))
                result = output
                if not call.is_around:
                    result = self._hand_on(call.called, "output", output, call.raw, (args, kwargs))
            finally:
                self._calls().pop()
                self._scopes.leave(call.depth)
            return None if result is output else result

        return after

    def _hand_on(self, site: Site, role: str, tree: Any, inside: Any, given: Any = None) -> Any:
        """`inside`: the same tensors on the inner side of the module's own hooks; None if unknown. `given`: of
        outputs, the arguments of the call."""
        count = sum(1 for _ in tensors_of(tree))
        converted = list(tensors_of(inside)) if inside is not None else []
        inner = iter(converted if len(converted) == count else [None] * count)
        handed_through = {_place_of(tensor) for tensor in tensors_of(given)} if count > 1 else set()
        if role == "output":
            return self._hand_on_all(site, role, tree, inner, handed_through, lambda number: number)
        args, kwargs = tree
        slots = Slots(site.module, args, kwargs)
        calls = self._calls()
        surrounding = set().union(*(call.taken for call in calls[:-1]))

        def hand_on(argument: int | str, value: Any) -> Any:
            return self._hand_on_all(site, role, value, inner, surrounding, functools.partial(slots.of, argument))

        new_args = tuple(hand_on(position, value) for position, value in enumerate(args))
        new_kwargs = {name: hand_on(name, value) for name, value in kwargs.items()}
        calls[-1].taken = {_place_of(tensor) for tensor in tensors_of((new_args, new_kwargs))}
        changed = any(map(operator.is_not, new_args, args))
        changed = changed or any(new_kwargs[name] is not value for name, value in kwargs.items())
        return (new_args, new_kwargs) if changed else tree

    def _hand_on_all(
        self,
        site: Site,
        role: str,
        tree: Any,
        inside: Iterator[torch.Tensor | None],
        handed_through: set[object],
        slot_of: Callable[[int], int],
    ) -> Any:
        """`inside`: as long as the tensors. `slot_of`: by the number of what is traced."""
        number = -1

        def visit(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal number
            inner = next(inside)
            if not is_traced(tensor):
                return tensor
            number += 1
            slot = slot_of(number)
            # Next to what a module computes, it may hand on what it got, the same tensor or a view, and so it may to a
            # module within it: whether such a tensor's gradient has a part of other modules, no two programs agree
            # on. Its values, they do: where one program hands it on, another one may redistribute it.
            if (slot > 0 or role == "input") and handed_through and _place_of(tensor) in handed_through:
                with unseen():
                    without_graph = tensor.detach()
                self._record(site, role, slot, without_graph, inner)
                return tensor
            return self._record(site, role, slot, tensor, inner)

        return map_tensors(tree, visit)

    def _record(
        self, site: Site, role: str, slot: int, tensor: torch.Tensor, inside: torch.Tensor | None
    ) -> torch.Tensor:
        if not self._recorder.in_microbatch:
            return tensor  # a pipeline finds out shapes
        parts = settled(tensor)
        where = self._program.placement(site, role, slot, parts, inside)
        if isinstance(where, Untraced):
            return tensor
        is_input = role == "input"
        if isinstance(where, Rows):
            return self._record_rows(site.path, is_input, slot, tensor, where)
        if where is not None:
            self._place(site.path, role, slot, where)
        order = () if where is None else where.order
        original = tensor if is_input else self._unreturned(tensor)
        is_wrapper = isinstance(tensor, (DTensor, AsyncCollectiveTensor)) or is_simulated(tensor)
        if order or is_wrapper or quantised.is_quantised(tensor):
            result = self._record_local(
                site.path, role, slot, original, parts if original is tensor else settled(original), order
            )
            if result is not original:
                return self._replaced(is_input, result, original, tensor)
            return original if is_input else tensor
        if where is not None and where.addends > 1:
            self._scopes.summed(where.addends)
            for parameter in where.follow:
                self._scopes.summed_gradient(parameter, where.addends)
        hand_on = self._scopes.input if is_input else self._scopes.output
        result = hand_on(original, slot)
        if result is not original:
            result = self._replaced(is_input, result, original, tensor)
        elif not is_input:
            result = tensor
        if not is_input and slot == 0 and getattr(site.module, "fp8", False) and result.requires_grad:
            self._record_fp8_of_gradient(site, result)
        return result

    def _record_rows(
        self, path: str, is_input: bool, slot: int, tensor: torch.Tensor, rows: Rows
    ) -> torch.Tensor:
        if rows.dims is not None:
            self._place(path, "input" if is_input else "output", slot, rows.dims)
        hand_on = self._scopes.input_rows if is_input else self._scopes.output_rows
        own = torch.empty(0, dtype=torch.int64) if rows.microbatch is None else rows.microbatch
        return hand_on(
            tensor, slot, rows.index, rows.size, rows.dim, rows.sparse, own, list(rows.microbatches)
        )

    def _unreturned(self, tensor: torch.Tensor) -> torch.Tensor:
        """What the running module was given, or what one within it returned, if a forced pass replaced it by
        `tensor`: two names of one tensor have one gradient."""
        for result, original in (*self._calls()[-1].returned, *self._calls()[-1].replaced):
            if result is tensor:
                return original
        return tensor

    def _replaced(
        self, is_input: bool, result: torch.Tensor, original: torch.Tensor, before: torch.Tensor
    ) -> torch.Tensor:
        """Notes that `result` replaces `original`, and returns it; or `before`, if that replaced it for another
        name and has the same values: others may have put hooks on it by now. FSDP2 gathers weights in such a hook."""
        if before is not original and has_same_bits(local_part(before), local_part(result)):
            result = before
        if is_input:
            self._calls()[-1].replaced.append((result, original))
        elif len(self._calls()) > 1:
            self._calls()[-2].returned.append((result, original))
        return result

    def _record_fp8(self, states: Iterable[quantised.Fp8State]) -> None:
        for kind, slot, tensor in states:
            getattr(self._scopes, kind)(tensor, slot)

    def _record_fp8_of_gradient(self, site: Site, output: torch.Tensor) -> None:
        def arrived(gradient: torch.Tensor) -> None:
            del gradient
            depth = self._scopes.enter(site.path)
            self._record_fp8(quantised.of_backward(site.module))
            self._scopes.leave(depth)

        output.register_hook(arrived)

    def _record_local(
        self,
        path: str,
        role: str,
        slot: int,
        tensor: torch.Tensor,
        parts: torch.Tensor,
        order: tuple[int, ...] = (),
    ) -> torch.Tensor:
        """The library cannot read tensors that Python wraps: it gets this rank's part of the tensor, and
        later of the gradient, and may give another one in its place. `parts`: the tensor as `settled` leaves it.
        `order` as in Dims."""

        def part_of(wrapped: torch.Tensor) -> torch.Tensor:
            part = local_part(wrapped)
            return part.permute(order) if order else part

        record = getattr(self._scopes, f"{role}_local")
        has_gradient = tensor.requires_grad and torch.is_grad_enabled()
        own = part_of(parts)
        value, expected = record(own, slot, has_gradient)
        result = tensor if value is own else instead_of(tensor, lambda: with_part(parts, value, order))
        if expected < 0:
            return result

        def arrived(gradient: torch.Tensor) -> torch.Tensor | None:
            gradient = settled(gradient)
            dims = self._program.gradient_dims(gradient)
            if dims is not None:
                self._derive(path, _FIELDS[role][1], slot, dims)
            part = part_of(gradient)
            given = self._scopes.local_gradient(expected, part)
            return None if given is part else with_part(gradient, given, order)

        tensor.register_hook(aside(arrived))
        return result

    def _place(self, path: str, role: str, slot: int, dims: Dims) -> None:
        key = (path, role, slot)
        if self._placed.get(key) == dims:
            return
        self._placed[key] = dims
        value, grad = _FIELDS[role]
        self._derive(path, value, slot, dims.value)
        self._derive(path, grad, slot, dims.grad or dims.value)
