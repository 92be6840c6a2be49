"""A program: a function as ops on values, each value with its sharding and the user's line.

The whole grammar. Values are numbered; ops, bodies and groups name them by number, so a pass that
changes shardings replaces `Program.values` and shares everything else.

    program     meshes, values, one body; the required shardings of results; groups of values
    body        arguments, ops in order, results
    op          kind, operands -> results, params, and for control flow one or more bodies
    value       shape, dtype, sharding (its `unreduced` axes are those of a partial sum), name, line
    rule        the factors of each dimension, and the kind of each factor

Control flow has the shape of jaxprs. `scan` has one body and the param `lengths = (consts, carries,
xs)`: its operands are the constants, the first carries and the stacked inputs, its results the last
carries and the stacked outputs. `while` has a `cond` body and a `body` body and the param
`lengths = (cond consts, body consts)`. `cond` has one body a branch, its first operand is the
index. `remat` has one body, which a backward pass recomputes. `manual` (a `shard_map`) has
one body whose values are local to the shardings of its params.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from shardwright.ir.errors import InternalError
from shardwright.ir.mesh import Mesh
from shardwright.ir.sharding import Sharding

Dims = tuple[tuple[int, ...], ...]  # for each dimension of a tensor its factors, major to minor
Literal = int | float | str | bool | None | Sharding
Param = Literal | tuple["Param", ...]
CONTROL = {
    "scan": 1,
    "while": 2,
    "remat": 1,
    "manual": 1,
}  # kinds with bodies, and the number of bodies; cond has any number


@dataclass(frozen=True)
class Rule:
    """The correspondence between the dimensions of an op's operands and results: each dimension
    consists of factors.

    A matmul is `([i, k], [k, j])->([i, j]) {i=8, j=8, k=16} reduction={k}`. A factor of no kind
    below passes through.
    """

    sizes: tuple[int, ...]
    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]
    reduction: tuple[int, ...] = ()  # reduced by a sum, maximum, …
    need_replication: tuple[int, ...] = ()  # must be whole on one device (sort)
    permutation: tuple[int, ...] = ()  # elements cross shard borders (slice, pad)
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
    sharding: Sharding | None = None  # one entry per dimension; None: unknown
    line: Line | None = None
    scope: tuple[str, ...] = field(default=(), compare=False)  # named scopes, outermost first
    backward: bool = field(default=False, compare=False)  # whether a backward pass makes it

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
    """An operation; `params` are sorted by name and determine its meaning."""

    kind: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    params: tuple[tuple[str, Param], ...] = ()
    bodies: tuple[Body, ...] = ()
    rule: Rule | None = None  # overrides the table's rule for its kind
    line: Line | None = None

    def param(self, name: str) -> Param:
        """Return the value of a parameter. Raises InternalError if the op does not have it."""
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
    """A function as ops on values. `results[i]` is the requested sharding of result i."""

    name: str
    meshes: tuple[Mesh, ...]
    values: tuple[Value, ...]
    body: Body
    results: tuple[Sharding | None, ...]
    groups: tuple[tuple[int, ...], ...] = ()  # values that must be sharded alike
    warnings: tuple[str, ...] = field(default=(), compare=False)
    paths: tuple[str, ...] = field(default=(), compare=False)  # names of results in the user's tree

    @property
    def result_names(self) -> tuple[str, ...]:
        """Names of results for messages: `result[1]['w']`, or their number."""
        return self.paths or tuple(f"result {place}" for place in range(len(self.results)))

    def value(self, name: str) -> Value:
        """Return the value of this name. Raises InternalError if there is none."""
        for value in self.values:
            if value.name == name:
                return value
        raise InternalError(f"no value %{name}")


def ops_of(body: Body) -> Iterator[Op]:
    """Yield every op of a body in order, each before the ops of its own bodies."""
    for op in body.ops:
        yield op
        for inner in op.bodies:
            yield from ops_of(inner)
