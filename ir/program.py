"""A program: a function as ops on values. A value has a sharding and a line of the user's source.

Values are numbered. Ops, bodies and groups refer to values by number, so a pass that changes only
shardings replaces only `Program.values`. The whole grammar:

    program     meshes, values, one body; the requested shardings of results; groups of values
    body        arguments, ops in order, results
    op          kind, operands -> results, params, and for control flow one or more bodies
    value       shape, dtype, sharding (unreduced axes mean partial sums), name, line
    rule        the factors of each dimension, and the kind of each factor

Control flow is represented as in jaxprs. `scan` has one body and the param `lengths = (consts,
carries, xs)`. Its operands are the constants, the first carries and the stacked inputs; its results
are the last carries and the stacked outputs. `while` has a body for the condition, a body for the
loop and the param `lengths = (cond consts, body consts)`. `cond` has one body per branch, and its
first operand is the number of the branch. `remat` has one body, which a backward pass recomputes.
`manual` (a `shard_map`) has one body, whose values are shards under the shardings of its params.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from shardwright.ir.errors import InternalError
from shardwright.ir.mesh import Mesh
from shardwright.ir.sharding import Sharding

Dims = tuple[tuple[int, ...], ...]  # the factors of each dimension of a tensor, major to minor
Literal = int | float | str | bool | None | Sharding
Param = Literal | tuple["Param", ...]
CONTROL = {
    "scan": 1,
    "while": 2,
    "remat": 1,
    "manual": 1,
}  # the number of bodies of each kind of control flow; `cond` has one per branch


@dataclass(frozen=True)
class Rule:
    """The correspondence between the dimensions of an op's operands and results, as in Shardy.

    Each dimension is a product of factors, and dimensions correspond if they share a factor. The
    rule of a matmul is `([i, k], [k, j])->([i, j]) {i=8, j=8, k=16} reduction={k}`. A factor that
    is in none of the lists below can be split in any way without communication.
    """

    sizes: tuple[int, ...]  # the size of each factor
    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]
    reduction: tuple[int, ...] = ()  # factors that a sum, maximum or other reduction removes
    need_replication: tuple[int, ...] = ()  # factors that each device must have whole (sort)
    permutation: tuple[int, ...] = ()  # factors whose elements move to other shards (slice, pad)
    blocked: tuple[int, ...] = ()  # factors along which shardings do not propagate

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
class UserCall:
    """A call of one of the user's functions, or of a jitted function of a library.

    `function`: its name; `defined`: the line of its definition, "" for a jitted function; `place`:
    the place of the call in its caller; `line`: the line of the call. Of the current expression in
    the function, `at` is the place, `is_looped` is whether it is in a loop, and `operands` are the
    names of its operands, "" for an operand without a name.
    """

    function: str
    defined: str
    place: int
    line: Line | None
    at: int = field(default=0, compare=False)
    is_looped: bool = field(default=False, compare=False)
    operands: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Written:
    """Where the user's source has a value. `text`: the variable to which it is assigned, or an
    expression in backquotes or words; `line`: the line of this assignment or expression, if it is
    in a file; `function`: the function around it, or ""."""

    text: str
    line: Line | None
    function: str

    def constrained(self, sharding: str, where: str = "") -> str:
        """Return the advice to constrain this expression to `sharding`. `where`: the text that
        follows the name of the function."""
        at = f" at {self.line}" if self.line else ""
        inside = f", in {self.function}" if self.function else ""
        return f"constrain {self.text} to {sharding}{at}{inside}{where}"


@dataclass(frozen=True)
class Value:
    """A tensor of a program. The mesh of its sharding is one of the program's meshes."""

    name: str  # unique in the program; without the `%` of the text form
    shape: tuple[int, ...]
    dtype: str  # as jaxprs print it: f32, bf16, i32, bool, key<fry>
    sharding: Sharding | None = None  # None if it is not known yet
    line: Line | None = None
    scope: tuple[str, ...] = field(default=(), compare=False)  # named scopes, outermost first
    backward: bool = field(default=False, compare=False)  # whether a backward pass computes it
    gradient_of: tuple[str, ...] = field(default=(), compare=False)  # values with this gradient
    calls: tuple[UserCall, ...] = field(default=(), compare=False)  # around its op, outermost first
    version_of: str = field(default="", compare=False)  # the value that it copies, padded otherwise
    written: Written | None = field(default=None, compare=False)  # where the user's source has it
    is_named: bool = field(default=False, compare=False)  # whether the user named it

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Body:
    """A block of ops, with the values that it takes and the values that it returns. Each value is
    defined once, as an argument or as a result of an op. A body may return a value twice."""

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
    rule: Rule | None = None  # replaces the rule that the table of kinds has for this op
    line: Line | None = None

    def param(self, name: str) -> Param:
        """Return the value of a param. Raise InternalError if the op does not have it."""
        for known, value in self.params:
            if known == name:
                return value
        raise InternalError(f"{self.kind} has no parameter {name!r}")

    def integers(self, name: str) -> tuple[int, ...]:
        """Return the integers of a param that is an integer or a tuple of integers. Raise
        InternalError for any other param."""
        value = self.param(name)
        if isinstance(value, int):
            return (value,)
        if not isinstance(value, tuple) or not all(isinstance(item, int) for item in value):
            raise InternalError(f"{name!r} of {self.kind} is {value!r}, not integers")
        return tuple(item for item in value if isinstance(item, int))


@dataclass(frozen=True)
class Program:
    """A function as ops on values. `results[i]`: the requested sharding of result i, or None."""

    name: str
    meshes: tuple[Mesh, ...]
    values: tuple[Value, ...]
    body: Body
    results: tuple[Sharding | None, ...]
    groups: tuple[tuple[int, ...], ...] = ()  # values that must be sharded alike
    warnings: tuple[str, ...] = field(default=(), compare=False)
    paths: tuple[str, ...] = field(default=(), compare=False)  # the results' paths in the pytree
    argument_paths: tuple[str, ...] = field(default=(), compare=False)  # the arguments' paths
    held: tuple[str, ...] = field(default=(), compare=False)  # paths in the variables returned

    @property
    def result_names(self) -> tuple[str, ...]:
        """The names of results for messages: `result[1]['w']`, or `result 1` without paths."""
        return self.paths or tuple(f"result {place}" for place in range(len(self.results)))

    def argument_name(self, number: int) -> str:
        """Return the path of the argument that is value `number`, such as `params['w']`, or its
        name."""
        paths = dict(zip(self.body.arguments, self.argument_paths, strict=False))
        return paths.get(number, self.values[number].name)

    def value(self, name: str) -> Value:
        """Return the value with a name. Raise InternalError if there is none."""
        for value in self.values:
            if value.name == name:
                return value
        raise InternalError(f"no value %{name}")


def ops_of(body: Body) -> Iterator[Op]:
    """Yield every op of a body and of nested bodies in order; an op comes before the ops in its
    bodies."""
    for op in body.ops:
        yield op
        for inner in op.bodies:
            yield from ops_of(inner)
