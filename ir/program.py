"""A program: a function as ops on values, each value with its sharding and the user's line.

The whole grammar. Values are numbered; ops, bodies and groups name them by number, so a pass that
changes shardings replaces `Program.values` and shares everything else.

    program     meshes, values, one body; the shardings that results must have; groups of values
    body        arguments, ops in order, results
    op          kind, operands -> results, params, and for control flow one or more bodies
    value       shape, dtype, sharding (its `unreduced` axes are those of a partial sum), name, line
    rule        which dimensions run through which factors, and what kind of factor each is

Control flow has the shape of jaxprs. `scan` has one body and the param `lengths = (consts, carries,
xs)`: its operands are the constants, the first carries and the stacked inputs, its results the last
carries and the stacked outputs. `while` has a `cond` body and a `body` body and the param
`lengths = (cond consts, body consts)`. `cond` has one body a branch, its first operand is the
index. `remat` has one body, whose ops a backward pass computes again. `manual` (a `shard_map`) has
one body whose values are local to the shardings of its params.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from shardwright.ir.errors import InternalError
from shardwright.ir.mesh import Mesh
from shardwright.ir.sharding import Sharding

Dims = tuple[tuple[int, ...], ...]  # of a tensor: for each dimension its factors, major to minor
Literal = int | float | str | bool | None | Sharding
Param = Literal | tuple["Param", ...]
CONTROL = {
    "scan": 1,
    "while": 2,
    "remat": 1,
    "manual": 1,
}  # kinds that have bodies, and how many; cond has any


@dataclass(frozen=True)
class Rule:
    """How dimensions of an op's operands and results correspond: each runs through factors.

    A matmul is `([i, k], [k, j])->([i, j]) {i=8, j=8, k=16} reduction={k}`. A factor that is of
    none of the kinds below is passed through.
    """

    sizes: tuple[int, ...]
    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]
    reduction: tuple[int, ...] = ()  # summed (or maximized, …) over
    need_replication: tuple[int, ...] = ()  # the op needs all of it on one device (sort)
    permutation: tuple[int, ...] = ()  # elements cross the borders of shards (slice, pad)
    blocked: tuple[int, ...] = ()  # never propagated along

    @property
    def tensors(self) -> tuple[Dims, ...]:
        return (*self.operands, *self.results)


@dataclass(frozen=True)
class Line:
    """A line of the user's source."""

    file: str
    number: int

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


@dataclass(frozen=True)
class Value:
    """A tensor of a program; its mesh is that of its sharding."""

    name: str  # unique in the program, without the `%` it is printed with
    shape: tuple[int, ...]
    dtype: str  # as jaxprs print it: f32, bf16, i32, bool, key<fry>
    sharding: Sharding | None = None  # of as many dimensions as the shape; None: nothing is known
    line: Line | None = None
    scope: tuple[str, ...] = field(default=(), compare=False)  # named scopes, from outside in

    @property
    def size(self) -> int:
        """How many elements the tensor has."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Body:
    """A block of ops. An argument or a result of an op is defined once; results may repeat."""

    arguments: tuple[int, ...]
    ops: tuple[Op, ...]
    results: tuple[int, ...]


@dataclass(frozen=True)
class Op:
    """An operation; `params` are sorted by name and hold what its meaning depends on."""

    kind: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    params: tuple[tuple[str, Param], ...] = ()
    bodies: tuple[Body, ...] = ()
    rule: Rule | None = None  # in the place of the one the table has for its kind
    line: Line | None = None

    def param(self, name: str) -> Param:
        """Return the value of a parameter; an InternalError if the op has none of this name."""
        for known, value in self.params:
            if known == name:
                return value
        raise InternalError(f"{self.kind} has no parameter {name!r}")

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a parameter that is a tuple of integers, or one integer."""
        value = self.param(name)
        if isinstance(value, int):
            return (value,)
        if not isinstance(value, tuple) or not all(isinstance(item, int) for item in value):
            raise InternalError(f"{name!r} of {self.kind} is {value!r}, not integers")
        return tuple(item for item in value if isinstance(item, int))


@dataclass(frozen=True)
class Program:
    """A function as ops on values. `results[i]` is the sharding asked for the i-th result."""

    name: str
    meshes: tuple[Mesh, ...]
    values: tuple[Value, ...]
    body: Body
    results: tuple[Sharding | None, ...]
    groups: tuple[tuple[int, ...], ...] = ()  # values that are to be sharded alike
    warnings: tuple[str, ...] = field(default=(), compare=False)
    paths: tuple[str, ...] = field(default=(), compare=False)  # of results, in the user's tree

    @property
    def result_names(self) -> tuple[str, ...]:
        """How results are called in sentences: `result[1]['w']`, or by their number."""
        return self.paths or tuple(f"result {place}" for place in range(len(self.results)))

    def value(self, name: str) -> Value:
        """Return the value of this name; an InternalError if there is none."""
        for value in self.values:
            if value.name == name:
                return value
        raise InternalError(f"no value %{name}")


def ops_of(body: Body) -> Iterator[Op]:
    """Yield every op of a body in order, each before those of its own bodies."""
    for op in body.ops:
        yield op
        for inner in op.bodies:
            yield from ops_of(inner)
