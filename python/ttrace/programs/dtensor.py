"""Programs of DTensor: FSDP2 (`fully_shard`), tensor parallelism by `parallelize_module`, HSDP, and both.

A DTensor parameter says where it lies. Activations are plain tensors most of the time. Their placement is
derived from the first of these that exists: the DTensor that a parallel style makes of them on the inner side
of the module (its global shape against the local one), the module that made them, an input of the same shape,
and the latest activation of the same local shape (for a sum of two activations). The last two are guesses.
Samples (dimension `batch_dim`) are cut over the axes that FSDP shards and replicates over.

Autograd's gradient of a DTensor parameter per micro-batch is not recorded, because FSDP2 reduces it before
anyone sees it. The accumulated gradient is recorded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.utils.weak import WeakIdKeyDictionary

from ..base.layout import Layout
from ..base.local_part import local_part, unwrapped
from ..base.names import canonical
from ..base.recorder import Recorder
from ..base.simulated import refuse_fsdp, shape_of
from ..base.unseen import unseen
from ..base.values import Description, Dims, Gradient, Parameter, Site, Untraced
from . import plain
from .dims_text import Samples, dim_name, scalar_text
from .plain import PlainProgram

Cuts = dict[int, list[str]]  # by dimension the axes that cut it, in the order of cutting


def recognises(chunks: Sequence[Any]) -> bool:
    """Whether this is one module with a parameter that is a DTensor."""
    return plain.recognises(chunks) and any(
        isinstance(parameter, DTensor) for parameter in chunks[0].parameters()
    )


def axis_names(mesh: DeviceMesh, unnamed: str) -> list[str]:
    """The names of the mesh's dimensions."""
    names = mesh.mesh_dim_names
    if names is not None:
        return [canonical(name) for name in names]
    return [unnamed if mesh.ndim == 1 else f"{unnamed}{i}" for i in range(mesh.ndim)]


def cuts_of(tensor: DTensor, names: list[str]) -> tuple[Cuts, list[str]]:
    """The axes that cut its dimensions, and those over which it is still to be summed."""
    cuts: Cuts = {}
    strided: Cuts = {}
    partial = []
    for name, placement in zip(names, tensor.placements):
        if placement.is_partial():
            partial.append(name)
        elif type(placement).__name__ == "_StridedShard":
            # This axis cuts last although it is first in the mesh: FSDP cuts what TP has cut.
            strided.setdefault(placement.dim % tensor.dim(), []).append(name)
        elif placement.is_shard():
            cuts.setdefault(placement.dim % tensor.dim(), []).append(name)
    for dim, axes in strided.items():
        cuts.setdefault(dim, []).extend(axes)
    return cuts, partial


@dataclass(frozen=True)
class Blocks:
    """What a dimension consists of, such as the gate and the up part of a joint weight, or the positions that have
    features each. The axes `within` cut every block; others divide the blocks."""

    size: int  # of each block
    within: list[str]


def blocks_of(tensor: DTensor, names: list[str]) -> dict[int, Blocks]:
    """By dimension. FSDP2 writes in the same way that it cuts what TP has cut into as many parts; these have no
    blocks here."""
    blocks: dict[int, Blocks] = {}
    for axis, placement in enumerate(tensor.placements):
        if type(placement).__name__ != "_StridedShard":
            continue
        dim = placement.dim % tensor.dim()
        others = {
            i: tensor.device_mesh.size(i)
            for i, other in enumerate(tensor.placements)
            if other.is_shard() and type(other).__name__ != "_StridedShard" and other.dim % tensor.dim() == dim
        }
        # An axis before this one has divided what the factor counts.
        count = placement.split_factor * math.prod(size for i, size in others.items() if i < axis)
        if count != math.prod(others.values()):
            within = blocks[dim].within if dim in blocks else []
            blocks[dim] = Blocks(tensor.shape[dim] // count, [*within, names[axis]])
    return blocks


def text_of(
    layout: Layout,
    shape: tuple[int, ...],
    local: tuple[int, ...],
    cuts: Cuts,
    partial: list[str],
    blocks: Mapping[int, Blocks] | None = None,
    samples: Samples | None = None,
) -> str:
    """Dims of a tensor of global `shape`; they name sizes that do not divide evenly."""
    words = []
    blocks = blocks or {}
    for dim in range(len(shape)):
        axes = list(cuts.get(dim, []))
        added = [f"{axis}:partial" for axis in partial] if dim == 0 else []
        name = dim_name(dim, None)
        if dim in blocks:
            size, within = blocks[dim].size, blocks[dim].within
            count = _factor(str(shape[dim] // size), [axis for axis in axes if axis not in within])
            words.append(f"({count}*{_factor(f'{name}={size}', within + added)})")
            continue
        is_uneven = shape[dim] != local[dim] * math.prod(map(layout.size, axes))
        has_samples = samples is not None and dim == samples.dim
        if has_samples and samples.positions > 1 and not is_uneven:
            words.append(dim_name(dim, samples, ",".join(axes + added)))
            continue
        name = "b" if has_samples and samples.positions == 1 else name
        size = f"={shape[dim]}" if is_uneven else ""
        words.append(_factor(name + size, axes + added))
    return " ".join(words) or scalar_text(partial)


def _factor(name: str, axes: list[str]) -> str:
    return name + (f"[{','.join(axes)}]" if axes else "")


@dataclass(frozen=True)
class _Lies:
    """Where an activation lies."""

    cuts: Cuts
    is_guess: bool = False


class DTensorProgram(PlainProgram):
    """See the head of this file.

    Options of `ttrace.attach`:
        batch_axes: names of the mesh dimensions that have different samples; default: those of FSDP.
        batch_dim, loss, scaler: as for plain modules.
    """

    looks_inside = True

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: Any,
        describe: Mapping[str, Any],
        batch_axes: tuple[str, ...] | None = None,
        **options: Any,
    ):
        super().__init__(model, optimizer, describe, **options)
        fsdp = _fsdp_axes(self.model)
        self.batch_axes = list(fsdp if batch_axes is None else batch_axes)
        self._unnamed = "dp" if fsdp else "tp"
        for parameter in self.model.parameters():
            if isinstance(parameter, DTensor):
                self._add_mesh(parameter.device_mesh)
        if self.layout.size("dp") > 1 and not self.batch_axes:
            self.batch_axes = ["dp"]  # DistributedDataParallel over parallel modules
        self._known: WeakIdKeyDictionary = WeakIdKeyDictionary()  # dims of activations that are alive
        # Answers to earlier calls with tensors of the same shapes and layouts.
        self._answers: dict[tuple, tuple[_Lies, Dims]] = {}
        self._parameters = [
            self._parameter(canonical(name), parameter) for name, parameter in self.model.named_parameters()
        ]

    def _add_mesh(self, mesh: DeviceMesh) -> None:
        coordinates = mesh.get_coordinate()
        for dim, name in enumerate(axis_names(mesh, self._unnamed)):
            self.layout.add(name, mesh.size(dim), coordinates[dim])

    # --- what the model is -------------------------------------------------------------------------

    def description(self) -> Description:
        description = super().description()
        description.untraced.append(r"/param_grad/")
        return description

    def parameters(self) -> list[Parameter]:
        return self._parameters

    def _parameter(self, path: str, parameter: torch.nn.Parameter) -> Parameter:
        if not isinstance(parameter, DTensor):
            return Parameter(path, unwrapped(parameter), self.parameter_dims(parameter), parameter)
        local = local_part(parameter)
        names = axis_names(parameter.device_mesh, self._unnamed)
        cuts, partial = cuts_of(parameter, names)
        blocks = blocks_of(parameter, names)
        text = text_of(self.layout, tuple(parameter.shape), tuple(local.shape), cuts, partial, blocks)
        return Parameter(path, local, Dims(text), parameter)

    # --- where activations lie ---------------------------------------------------------------------

    def placement(
        self, site: Site, role: str, slot: int, tensor: torch.Tensor, inside: torch.Tensor | None
    ) -> Dims | Untraced | None:
        call = (site.path, role, slot, *_layout_key(tensor), *_layout_key(inside), *sorted(self._batches))
        found = self._answers.get(call)
        if found is None or self._known.get(tensor, found[0]) != found[0]:
            lies = self._lies(site, role, tensor, inside)
            found = self._answers[call] = (lies, self._dims(tensor, lies))
        lies, dims = found
        self._known[tensor] = lies
        self._by_local_shape[shape_of(tensor)] = lies.cuts
        if role == "input":
            self._inputs.setdefault(site.path, {})[slot] = (shape_of(tensor), lies.cuts)
        return dims

    def _dims(self, tensor: torch.Tensor, lies: _Lies) -> Dims:
        cuts = lies.cuts
        local = _local_shape(tensor)
        partial = cuts_of(tensor, self._names(tensor))[1] if isinstance(tensor, DTensor) else []
        blocks = blocks_of(tensor, self._names(tensor)) if isinstance(tensor, DTensor) else {}
        whole = self._whole(tensor, cuts)

        def text(addends: list[str]) -> str:
            dims = text_of(self.layout, whole, local, cuts, addends, blocks, self._samples(tensor, cuts))
            return ("? " if lies.is_guess else "") + dims

        # A tensor that all ranks hold alike gets gradients from different samples.
        addends = [] if self._has_samples(tensor) else self.sample_axes()
        return Dims(text(partial), text(addends or partial))

    def _lies(self, site: Site, role: str, tensor: torch.Tensor, inside: torch.Tensor | None) -> _Lies:
        shape = shape_of(tensor)
        if isinstance(tensor, DTensor):
            return _Lies(self._with_batch(cuts_of(tensor, self._names(tensor))[0], tensor))
        if isinstance(inside, DTensor):
            return _Lies(self._with_batch(self._by_shape(tensor, inside), tensor))
        known = self._known.get(tensor)
        if known is not None:
            return known
        if role == "output":
            for given, cuts in self._inputs.get(site.path, {}).values():
                if given == shape:
                    return _Lies(cuts, is_guess=True)
        alike = self._by_local_shape.get(shape)
        cuts = self._with_batch({}, tensor) if alike is None else alike
        return _Lies(cuts, is_guess=True)

    def _names(self, tensor: DTensor) -> list[str]:
        return axis_names(tensor.device_mesh, self._unnamed)

    def _by_shape(self, tensor: torch.Tensor, inside: DTensor) -> Cuts:
        """A style's DTensor has the global shape; a dimension is cut if the plain tensor is smaller there."""
        if tensor.dim() != inside.dim():
            return {}
        names = [name for name in self._names(inside) if name not in self.batch_axes]
        cuts: Cuts = {}
        for dim, (local, whole) in enumerate(zip(shape_of(tensor), inside.shape)):
            if local != whole:
                cuts[dim] = names
        return cuts

    def sample_axes(self) -> list[str]:
        return [axis for axis in self.batch_axes if self.layout.size(axis) > 1]

    def _has_samples(self, tensor: torch.Tensor) -> bool:
        """A DTensor may be cut along its samples once more, by axes of its own mesh."""
        return any(map(self.samples_of, (_local_shape(tensor), shape_of(tensor))))

    def _samples(self, tensor: torch.Tensor, cuts: Cuts) -> Samples | None:
        """The dimension that is cut by samples alone. Axes that cut samples x positions may divide either."""
        samples = self.samples_of(_local_shape(tensor)) or self.samples_of(shape_of(tensor))
        if samples is None or samples.positions == 1:
            return samples
        return samples if cuts.get(samples.dim, []) == self.sample_axes() else None

    def _with_batch(self, cuts: Cuts, tensor: torch.Tensor) -> Cuts:
        axes = self.sample_axes()
        if not self._has_samples(tensor):
            return cuts
        first = cuts.get(self.batch_dim, [])
        missing = [axis for axis in axes if axis not in first]
        return {**cuts, self.batch_dim: missing + first} if missing else cuts

    def _whole(self, tensor: torch.Tensor, cuts: Cuts) -> tuple[int, ...]:
        """The global shape. A DTensor knows it, but for axes of samples that are not in its mesh."""
        sizes = list(shape_of(tensor))
        known = self._names(tensor) if isinstance(tensor, DTensor) else []
        for dim, axes in cuts.items():
            for axis in axes:
                if dim < len(sizes) and axis not in known:
                    sizes[dim] *= self.layout.size(axis)
        return tuple(sizes)

    def gradient_dims(self, gradient: torch.Tensor) -> str | None:
        if not isinstance(gradient, DTensor):
            return None
        cuts, partial = cuts_of(gradient, self._names(gradient))
        cuts = self._with_batch(cuts, gradient)
        whole, local = self._whole(gradient, cuts), _local_shape(gradient)
        blocks = blocks_of(gradient, self._names(gradient))
        return text_of(self.layout, whole, local, cuts, partial, blocks, self._samples(gradient, cuts))

    def data_dims(self, name: str, tensor: torch.Tensor) -> str | None:
        if name == "loss" and tensor.numel() == 1:
            return self.total_dims()
        if isinstance(tensor, DTensor):
            return self.gradient_dims(tensor)
        cuts = self._with_batch({}, tensor)
        whole, samples = self._whole(tensor, cuts), self._samples(tensor, cuts)
        return text_of(self.layout, whole, shape_of(tensor), cuts, [], samples=samples)

    # --- when things happen ------------------------------------------------------------------------

    def step_begins(self, recorder: Recorder) -> None:
        super().step_begins(recorder)
        self._by_local_shape: dict[tuple[int, ...], Cuts] = {}  # of the latest activation
        self._inputs: dict[str, dict[int, tuple[tuple[int, ...], Cuts]]] = {}

    def gradients(self) -> list[Gradient]:
        return [
            Gradient(parameter.path, local_part(_placed_as(parameter.object)))
            for parameter in self._parameters
            if parameter.object.grad is not None
        ]

    def _after_step(self, parameter: Parameter) -> torch.Tensor:
        return local_part(parameter.object)

    def own_dims(self, tensor: torch.Tensor) -> str | None:
        if not isinstance(tensor, DTensor) or tensor.dim() == 0:
            return None
        names = self._names(tensor)
        shape, local = tuple(tensor.shape), _local_shape(tensor)
        return text_of(self.layout, shape, local, *cuts_of(tensor, names), blocks_of(tensor, names))


def _local_shape(tensor: torch.Tensor) -> tuple[int, ...]:
    return shape_of(tensor._local_tensor if isinstance(tensor, DTensor) else tensor)


def _layout_key(tensor: torch.Tensor | None) -> tuple:
    return (
        None if tensor is None else shape_of(tensor),
        tensor.placements if isinstance(tensor, DTensor) else None,
    )


def _placed_as(parameter: Any) -> torch.Tensor:
    """The gradient, redistributed to its parameter's placements as the optimizer does."""
    gradient = parameter.grad
    if isinstance(gradient, DTensor) and gradient.placements != parameter.placements:
        with unseen(), torch.no_grad():
            return gradient.redistribute(placements=parameter.placements)
    return gradient


def _fsdp_axes(model: torch.nn.Module) -> list[str]:
    """Mesh dimensions over which FSDP2 shards (and HSDP replicates): their ranks have different samples."""
    from torch.distributed.fsdp import FSDPModule

    for module in model.modules():
        if isinstance(module, FSDPModule):
            refuse_fsdp()
            state = module._get_fsdp_state()
            groups = getattr(state, "_fsdp_param_groups", None)
            if groups is None:  # torch before 2.13 has one group of parameters in a module, or none
                groups = [state._fsdp_param_group]
            for group in groups:
                if group is not None:
                    return axis_names(group.mesh_info.mesh, "dp")
    return []


def make(
    chunks: Sequence[Any], optimizer: Any, describe: Mapping[str, Any], **options: Any
) -> DTensorProgram:
    return DTensorProgram(chunks[0], optimizer, describe, **options)
