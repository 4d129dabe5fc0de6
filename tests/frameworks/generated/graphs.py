"""Small operator graphs, cut by DTensor placements: drawn at random, valid by construction, printed as scripts.

A graph is a list of nodes. Each node is a module that applies one operator to earlier values, so that TTrace records
its inputs and its output; sizes are chosen so that operators fit, and every operator keeps values near 1.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace

SIZES = (4, 6, 8, 12, 5)
MOST_ELEMENTS = 2000
MESHES = ((2,), (4,), (2, 2))


@dataclass(frozen=True)
class Node:
    op: str  # a key of OPERATORS
    inputs: tuple[str, ...]
    numbers: tuple[int, ...] = ()  # dimensions, sizes
    weights: tuple[tuple[str, tuple[int, ...], tuple[str, ...]], ...] = ()  # name, shape, placements
    placements: tuple[str, ...] = ()  # of redistribute


@dataclass(frozen=True)
class Graph:
    precision: str = "f32"
    seed: int = 1
    mesh: tuple[int, ...] = (2,)
    # Shapes and placements by name; a placement is "R" or "S" and the number of a dimension.
    inputs: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        return 4 if self.mesh != (2,) else 2

    def sinks(self) -> list[str]:
        used = {name for node in self.nodes.values() for name in node.inputs}
        return [name for name in self.nodes if name not in used]

    def text(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


def graph_of(text: str) -> Graph:
    """Inverse of Graph.text()."""

    def tuples(value):
        return tuple(tuples(item) for item in value) if isinstance(value, list) else value

    raw = json.loads(text)
    return Graph(
        raw["precision"],
        raw["seed"],
        tuple(raw["mesh"]),
        {name: tuples(entry) for name, entry in raw["inputs"].items()},
        {name: Node(**{key: tuples(value) for key, value in node.items()}) for name, node in raw["nodes"].items()},
    )


# What the module of a node computes; a, b are its inputs, w its weights in order, n its numbers.
OPERATORS = {
    "linear": "F.linear(a, *w)",
    "norm": "F.layer_norm(a, a.shape[-1:], *w)",
    "softmax": "torch.softmax(a, n[0]) * a.shape[n[0]] ** 0.5",
    "gelu": "F.gelu(a)",
    "add": "a + b",
    "mul": "a * b * 0.5",
    "matmul": "a @ b.transpose(-1, -2) / a.shape[-1] ** 0.5",
    "slice": "a.narrow(*n)",
    "cat": "torch.cat((a, b), n[0])",
    "transpose": "a.transpose(*n)",
    "sum": "a.sum(n[0], keepdim=True) / a.shape[n[0]] ** 0.5",
    "mean": "a.mean(n[0], keepdim=True)",
    "amax": "a.amax(n[0], keepdim=True)",
    "flatten": "a.flatten(*n)",
    "unflatten": "a.unflatten(n[0], n[1:])",
    "redistribute": "placed(a, p)",
}


class Drawing:
    """Draws a graph node by node."""

    def __init__(self, seed: int, precision: str | None = None):
        self.random = random.Random(seed)
        self.seed = seed
        self.mesh = self.random.choice(MESHES)
        self.precision = precision or self.random.choice(("f32", "bf16"))
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.inputs: dict = {}
        self.nodes: dict[str, Node] = {}

    def graph(self) -> Graph:
        rank = self.random.choice((2, 3))
        first = tuple(self.random.choice(SIZES) for _ in range(rank))
        for number in range(self.random.choice((1, 1, 2))):
            self.shapes[f"x{number}"] = first
            self.inputs[f"x{number}"] = (first, self.placements(first))
        if self.random.random() < 0.7:  # what follows has gradients
            self.add("linear")
        wanted = self.random.randint(3, 9)
        while len(self.nodes) < wanted:
            self.add(self.random.choice(list(OPERATORS)))
        if not any(node.weights for node in self.nodes.values()):  # there is nothing to train without one
            self.add("norm")
        return Graph(self.precision, self.seed, self.mesh, self.inputs, self.nodes)

    def placements(self, shape: tuple[int, ...], chance: float = 0.6) -> tuple[str, ...]:
        """One per dimension of the mesh."""

        def one() -> str:
            cut = self.random.random() < chance
            return f"S{self.random.randrange(len(shape))}" if cut and shape else "R"

        return tuple(one() for _ in self.mesh)

    def add(self, op: str) -> None:
        value = self.random.choice(list(self.shapes)[-4:])
        drawn = getattr(self, f"_{op}", self._unary)(value, self.shapes[value])
        if drawn is None:
            return
        inputs, shape, *rest = drawn
        numbers, weights = (*rest, (), ())[:2]
        size = 1
        for extent in shape:
            size *= extent
        if not 1 < size <= MOST_ELEMENTS or len(shape) > 4:
            return
        name = f"n{len(self.nodes)}"
        placed = self.placements(shape, 0.5) if op == "redistribute" else ()
        self.nodes[name] = Node(op, inputs, numbers, weights, placed)
        self.shapes[name] = shape

    def _dim(self, shape: tuple[int, ...]) -> int:
        return self.random.randrange(len(shape))

    def _weight(self, name: str, *shape: int) -> tuple:
        return (name, shape, self.placements(shape))

    def _unary(self, value, shape):
        return (value,), shape

    def _linear(self, value, shape):
        outputs = self.random.choice(SIZES)
        weights = [self._weight("weight", outputs, shape[-1])]
        if self.random.random() < 0.5:
            weights.append(self._weight("bias", outputs))
        return (value,), (*shape[:-1], outputs), (), tuple(weights)

    def _norm(self, value, shape):
        weights = (self._weight("weight", shape[-1]), self._weight("bias", shape[-1]))
        return ((value,), shape, (), weights) if shape[-1] > 1 else None

    def _softmax(self, value, shape):
        return (value,), shape, (self._dim(shape),)

    def _pair(self, value, shape):
        """Another value of the same shape, or the value itself."""
        return self.random.choice([name for name, other in self.shapes.items() if other == shape])

    def _add(self, value, shape):
        return (value, self._pair(value, shape)), shape

    _mul = _add

    def _matmul(self, value, shape):
        alike = [
            name for name, other in self.shapes.items()
            if len(other) == len(shape) and other[:-2] == shape[:-2] and other[-1] == shape[-1]
        ]  # fmt: skip
        other = self.random.choice(alike)
        return (value, other), (*shape[:-1], self.shapes[other][-2])

    def _slice(self, value, shape):
        dim = self._dim(shape)
        if shape[dim] < 3:
            return None
        length = self.random.randint(2, shape[dim] - 1)
        start = self.random.randint(0, shape[dim] - length)
        return (value,), (*shape[:dim], length, *shape[dim + 1 :]), (dim, start, length)

    def _cat(self, value, shape):
        dim = self._dim(shape)
        other = self._pair(value, shape)
        return (value, other), (*shape[:dim], 2 * shape[dim], *shape[dim + 1 :]), (dim,)

    def _transpose(self, value, shape):
        first, second = self.random.sample(range(len(shape)), 2) if len(shape) > 1 else (0, 0)
        turned = list(shape)
        turned[first], turned[second] = turned[second], turned[first]
        return (value,), tuple(turned), (first, second)

    def _sum(self, value, shape):
        dim = self._dim(shape)
        return (value,), (*shape[:dim], 1, *shape[dim + 1 :]), (dim,)

    _mean = _amax = _sum

    def _flatten(self, value, shape):
        first = self.random.randrange(len(shape) - 1) if len(shape) > 2 else None
        if first is None:
            return None
        return (value,), (*shape[:first], shape[first] * shape[first + 1], *shape[first + 2 :]), (first, first + 1)

    def _unflatten(self, value, shape):
        dim = self._dim(shape)
        parts = [part for part in (2, 3, 4) if shape[dim] % part == 0 and shape[dim] > part]
        if not parts:
            return None
        part = self.random.choice(parts)
        numbers = (part, shape[dim] // part)
        return (value,), (*shape[:dim], *numbers, *shape[dim + 1 :]), (dim, *numbers)


def draw(seed: int, precision: str | None = None) -> Graph:
    return Drawing(seed, precision).graph()


# --- smaller graphs that may still fail --------------------------------------------------------------


def smaller(graph: Graph) -> Iterator[Graph]:
    """Simpler graphs, the largest steps first."""
    sinks = graph.sinks()
    for sink in sinks if len(sinks) > 1 else ():
        yield from _trained(_upstream(graph, (sink,)))
    for name, node in reversed(graph.nodes.items()):
        for value in node.inputs:
            yield from _trained(_bypassed(graph, name, value))
        if name not in sinks:
            yield from _trained(_upstream(graph, (name,)))
    yield from _with_simpler_placements(graph)
    if graph.mesh != (2,):
        yield from _on_two_ranks(graph)


def _trained(graph: Graph | None) -> Iterator[Graph]:
    if graph is not None and any(node.weights for node in graph.nodes.values()):
        yield graph


def _upstream(graph: Graph, names: tuple[str, ...]) -> Graph:
    """What these values follow from."""
    kept = set(names)
    for name, node in reversed(graph.nodes.items()):
        kept |= set(node.inputs) if name in kept else set()
    return replace(
        graph,
        inputs={name: entry for name, entry in graph.inputs.items() if name in kept},
        nodes={name: node for name, node in graph.nodes.items() if name in kept},
    )


def _bypassed(graph: Graph, name: str, value: str) -> Graph | None:
    """Without the node, where its input has the shape of its output."""
    shapes = shapes_of(graph)
    if shapes[name] != shapes[value]:
        return None
    nodes = {
        other: replace(node, inputs=tuple(value if item == name else item for item in node.inputs))
        for other, node in graph.nodes.items() if other != name
    }  # fmt: skip
    rest = replace(graph, nodes=nodes)
    return _upstream(rest, tuple(rest.sinks())) if nodes else None


def _with_simpler_placements(graph: Graph) -> Iterator[Graph]:
    whole = tuple("R" for _ in graph.mesh)
    for name, (shape, placed) in graph.inputs.items():
        if placed != whole:
            yield replace(graph, inputs={**graph.inputs, name: (shape, whole)})
    for name, node in graph.nodes.items():
        for number, (weight, shape, placed) in enumerate(node.weights):
            if placed != whole:
                weights = [*node.weights]
                weights[number] = (weight, shape, whole)
                yield replace(graph, nodes={**graph.nodes, name: replace(node, weights=tuple(weights))})


def _on_two_ranks(graph: Graph) -> Iterator[Graph]:
    """With the placements of one dimension of the mesh."""
    for dim in range(len(graph.mesh)):
        nodes = {
            name: replace(
                node,
                weights=tuple((weight, shape, (placed[dim],)) for weight, shape, placed in node.weights),
                placements=node.placements[dim : dim + 1],
            )
            for name, node in graph.nodes.items()
        }
        inputs = {name: (shape, (placed[dim],)) for name, (shape, placed) in graph.inputs.items()}
        yield replace(graph, mesh=(2,), inputs=inputs, nodes=nodes)


def shapes_of(graph: Graph) -> dict[str, tuple[int, ...]]:
    import torch
    import torch.nn.functional as F

    shapes = {name: shape for name, (shape, _) in graph.inputs.items()}
    for name, node in graph.nodes.items():
        a, *more = (torch.empty(shapes[value], device="meta") for value in node.inputs)
        names = {
            "torch": torch, "F": F, "a": a, "b": more[0] if more else None, "n": node.numbers,
            "w": [torch.empty(shape, device="meta") for _, shape, _ in node.weights],
            "placed": lambda value, placements: value, "p": (),
        }  # fmt: skip
        shapes[name] = tuple(eval(OPERATORS[node.op], names).shape)
    return shapes


# --- as a script -------------------------------------------------------------------------------------

SCRIPT = '''"""An operator graph of graphs.py, alone or, under torchrun, cut over {ranks} ranks by DTensor.

    ttrace check --steps 0:1 --reference "python SCRIPT" --candidate "torchrun --nproc-per-node {ranks} SCRIPT"
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
import ttrace
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

TYPE = {{"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16}}[ttrace.precision("{precision}")]
R, S0, S1, S2, S3 = Replicate(), Shard(0), Shard(1), Shard(2), Shard(3)
INPUTS = {{{inputs}}}
WEIGHTS = {{{weights}}}


def placed(tensor, placements):
    return tensor.redistribute(placements=placements) if isinstance(tensor, DTensor) else tensor


class Op(nn.Module):
    def __init__(self, function, **shapes):
        super().__init__()
        self.function = function
        for name, shape in shapes.items():
            scale = shape[-1] ** -0.5 if len(shape) > 1 else 1.0
            self.register_parameter(name, nn.Parameter(torch.randn(shape) * scale))

    def forward(self, *values):
        return self.function(*values, *self.parameters())


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
{modules}

    def forward(self, {arguments}):
{calls}
        return {results}


torch.manual_seed({seed})
model = Graph().to(TYPE)
inputs = {{name: torch.randn(shape).to(TYPE) for name, (shape, _) in INPUTS.items()}}
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", {mesh}, mesh_dim_names={axes})
    inputs = {{name: distribute_tensor(value, mesh, INPUTS[name][1]) for name, value in inputs.items()}}
    for name, parameter in list(model.named_parameters()):
        owner, _, last = name.rpartition(".")
        weight = distribute_tensor(parameter.detach(), mesh, WEIGHTS[name])
        setattr(model.get_submodule(owner), last, nn.Parameter(weight))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tracer = ttrace.attach(model, optimizer=optimizer)
with tracer.step(0):
    results = model(**inputs)
    loss = sum(result.double().square().mean() for result in results)
    loss.backward()
    optimizer.step()
if "RANK" in os.environ:
    loss = loss.full_tensor()
    dist.destroy_process_group()
print(f"loss {{loss.item():.9g}}")
'''


def _tuple(items: tuple) -> str:
    return f"({', '.join(str(item) for item in items)}{',' if len(items) == 1 else ''})"


def _module(name: str, node: Node) -> str:
    values = ["a", "b"][: len(node.inputs)]
    weights = [weight for weight, _, _ in node.weights]
    expression = OPERATORS[node.op].replace("*w", ", ".join(weights))
    for number, value in enumerate(node.numbers):
        expression = expression.replace(f"n[{number}]", str(value))
    expression = expression.replace("n[1:]", _tuple(node.numbers[1:]))
    expression = expression.replace("*n", ", ".join(map(str, node.numbers)))
    expression = expression.replace("placed(a, p)", f"placed(a, {_tuple(node.placements)})")
    shapes = "".join(f", {weight}={_tuple(shape)}" for weight, shape, _ in node.weights)
    return f"        self.{name} = Op(lambda {', '.join(values + weights)}: {expression}{shapes})"


def script_of(graph: Graph) -> str:
    weights = {
        f"{name}.{weight}": _tuple(placed)
        for name, node in graph.nodes.items() for weight, _, placed in node.weights
    }  # fmt: skip
    return SCRIPT.format(
        ranks=graph.ranks,
        precision=graph.precision,
        seed=graph.seed,
        mesh=_tuple(graph.mesh),
        axes=_tuple(("'outer'", "'inner'") if len(graph.mesh) == 2 else ("'all'",)),
        inputs=", ".join(f'"{name}": ({_tuple(shape)}, {_tuple(p)})' for name, (shape, p) in graph.inputs.items()),
        weights=", ".join(f'"{name}": {placed}' for name, placed in weights.items()),
        modules="\n".join(_module(name, node) for name, node in graph.nodes.items()),
        arguments=", ".join(graph.inputs),
        calls="\n".join(f"        {name} = self.{name}({', '.join(node.inputs)})" for name, node in graph.nodes.items()),
        results=_tuple(tuple(graph.sinks())),
    )
