"""Random JAX functions with random shardings, for comparisons with Shardy's passes.

`case(seed, rich)` is what a seed makes: a function, its avals, and shardings. With `rich` they have
sub-axes, closed dimensions and priorities, and functions have constraints, groups and scans; with
`meshes` each is on one of several meshes; `formed`: how often, of ten steps, one is of those that
need a local form.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import random_forms

from shardwright.codegen.partition.constraints import constrain, shard_alike
from shardwright.ir.axes import AxisRef
from shardwright.ir.mesh import Mesh
from shardwright.ir.sharding import DimSharding, Sharding

MESH = Mesh({"a": 2, "b": 2, "c": 4})
MESHES = (MESH, Mesh({"c": 2, "a": 4, "d": 2}), Mesh({"c": 4, "a": 2, "b": 2}, range(15, -1, -1)))
EXTENTS = (8, 16)
Shape = tuple[int, ...]


@dataclass(eq=False)  # a function is itself alone
class Case:
    """A function by its steps: (kind, operands, what else), each of one result."""

    shapes: list[Shape]
    arguments: int
    steps: list[tuple[str, tuple[int, ...], Any]] = field(default_factory=list)
    inputs: tuple[Sharding | None, ...] = ()
    outputs: tuple[Sharding | None, ...] = ()
    meshes: tuple[Mesh, ...] = (MESH,)

    def results(self) -> list[int]:
        used = {operand for _, operands, _ in self.steps for operand in operands}
        made = range(self.arguments, len(self.shapes))
        return [value for value in made if value not in used] or [0]

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        values = list(arguments)
        for kind, operands, more in self.steps:
            values.append(_STEPS[kind](*(values[v] for v in operands), more))
        return tuple(values[v] for v in self.results())

    @property
    def avals(self) -> tuple[Any, ...]:
        return tuple(jax.ShapeDtypeStruct(s, jnp.float32) for s in self.shapes[: self.arguments])


def _scan(x: Any, w: Any, _: Any) -> Any:
    """A loop whose carry goes through a matmul, over the rows of what it is given."""

    def body(carry: Any, row: Any) -> Any:
        carry = jnp.tanh(carry @ w + row)
        return carry, carry

    return jax.lax.scan(body, x[0], x)[1]


_STEPS: dict[str, Any] = {
    "add": lambda x, y, _: x + y,
    "exp": lambda x, _: jnp.exp(x),
    "transpose": jnp.transpose,
    "reduce": lambda x, dim: x.sum(dim),
    "broadcast": lambda x, at: jax.lax.broadcast_in_dim(x, at[0], at[1]),
    "reshape": lambda x, shape: x.reshape(shape),
    "dot": lambda x, w, _: x @ w,
    "slice": lambda x, n: x[:n],
    "concatenate": lambda x, y, _: jnp.concatenate([x, y]),
    "constrain": constrain,
    "alike": lambda x, y, _: shard_alike(x, y)[0] * 2.0,
    "scan": _scan,
    **random_forms.STEPS,
}


def random_sharding(
    rng: random.Random, shape: Shape, rich: bool, meshes: tuple[Mesh, ...] = (MESH,)
) -> Sharding:
    """A sharding of a tensor; every axis is used with some chance."""
    mesh = meshes[0] if len(meshes) == 1 else rng.choice((meshes[0], *meshes))
    axes = [AxisRef(name) for name in sorted(mesh.names)]
    long = max(mesh.names, key=mesh.axis_size)
    if rich and rng.random() < 0.6 and mesh.axis_size(long) == 4:
        at = axes.index(AxisRef(long))
        axes[at : at + 1] = [AxisRef(long, 1, 2), AxisRef(long, 2, 2)]
    rng.shuffle(axes)
    dims: list[list[AxisRef]] = [[] for _ in shape]
    replicated: list[AxisRef] = []
    for axis in axes:
        chance = rng.random()
        if shape and chance < 0.4:
            dims[rng.randrange(len(shape))].append(axis)
        elif rich and chance < 0.46:
            replicated.append(axis)
    return Sharding(mesh, tuple(_dim(rng, refs, rich) for refs in dims), tuple(replicated))


def _dim(rng: random.Random, refs: list[AxisRef], rich: bool) -> DimSharding:
    is_open = rng.random() < (0.75 if rich else 1)
    priority = rng.randrange(3) if rich and (refs or is_open) and rng.random() < 0.3 else None
    return DimSharding(tuple(refs), is_open, priority)


def case(
    seed: int, rich: bool, steps: int = 18, meshes: tuple[Mesh, ...] = (MESH,), formed: int = 0
) -> Case:
    """What a seed makes."""
    rng = random.Random(seed)
    shapes = [
        tuple(rng.choice(EXTENTS) for _ in range(rng.randint(1, 3)))
        for _ in range(rng.randint(2, 5))
    ]
    made = Case(shapes, len(shapes), meshes=meshes)
    for _ in range(steps):
        is_formed = formed and rng.randrange(10) < formed
        value = rng.randrange(len(made.shapes)) if is_formed else None
        step = (
            _step(rng, made, rich) if value is None else random_forms.step(rng, made.shapes, value)
        )
        if step is not None:
            kind, operands, more, shape = step
            made.steps.append((kind, operands, more))
            made.shapes.append(shape)

    def maybe(shape: Shape, chance: float) -> Sharding | None:
        return random_sharding(rng, shape, rich, meshes) if rng.random() < chance else None

    made.inputs = tuple(maybe(s, 0.65) for s in shapes[: made.arguments])
    made.outputs = tuple(maybe(made.shapes[v], 0.35) for v in made.results())
    return made


def _step(rng: random.Random, made: Case, rich: bool) -> Any:
    """A random step on a random value; None where it does not fit."""
    shapes = made.shapes
    recent = rng.random() < 0.5
    value = len(shapes) - 1 - rng.randrange(min(4, len(shapes))) if recent else None
    x = rng.randrange(len(shapes)) if value is None else value
    shape = shapes[x]
    kinds = "add add add exp exp transpose reduce broadcast reshape dot dot slice concatenate"
    more = " constrain constrain alike scan" if rich else ""
    match rng.choice((kinds + more).split()):
        case ("add" | "concatenate" | "alike") as kind:
            y = rng.choice([v for v, other in enumerate(shapes) if other == shape])
            if kind == "alike" and (x == y or x < made.arguments or y < made.arguments):
                return None
            out = (2 * shape[0], *shape[1:]) if kind == "concatenate" else shape
            return (kind, (x, y), None, out) if shape[0] <= 16 else None
        case "exp":
            return "exp", (x,), None, shape
        case "transpose":
            order = list(range(len(shape)))
            rng.shuffle(order)
            return "transpose", (x,), tuple(order), tuple(shape[i] for i in order)
        case "reduce":
            dim = rng.randrange(len(shape))
            out = shape[:dim] + shape[dim + 1 :]
            return ("reduce", (x,), dim, out) if out else None
        case "broadcast":
            at = rng.randrange(len(shape) + 1)
            out = (*shape[:at], rng.choice(EXTENTS), *shape[at:])
            dims = tuple(i for i in range(len(out)) if i != at)
            return ("broadcast", (x,), (out, dims), out) if len(out) < 5 else None
        case "reshape":
            return _reshape(rng, x, shape)
        case "dot":
            fitting = [v for v, o in enumerate(shapes) if len(o) == 2 and o[0] == shape[-1]]
            if len(shape) < 2 or not fitting:
                return None
            w = rng.choice(fitting)
            return "dot", (x, w), None, (*shape[:-1], shapes[w][1])
        case "slice":
            return ("slice", (x,), shape[0] // 2, (shape[0] // 2, *shape[1:]))
        case "constrain":
            return "constrain", (x,), random_sharding(rng, shape, rich, made.meshes), shape
        case _:
            return _loop(rng, shapes, x)


def _reshape(rng: random.Random, x: int, shape: Shape) -> Any:
    if len(shape) > 1 and rng.random() < 0.5:
        out: Shape = (shape[0] * shape[1], *shape[2:])
    elif shape[0] >= 4 and len(shape) < 4:
        out = (2, shape[0] // 2, *shape[1:])
    else:
        return None
    return "reshape", (x,), out, out


def _loop(rng: random.Random, shapes: list[Shape], x: int) -> Any:
    shape = shapes[x]
    if len(shape) != 3:
        return None
    square = [v for v, other in enumerate(shapes) if other == (shape[2], shape[2])]
    return ("scan", (x, rng.choice(square)), None, shape) if square else None
