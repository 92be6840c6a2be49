"""The steps of one device, which operate on local values. The whole grammar:

program     pieces of axes, local values, functions, one body
function    a separate body that steps call
body        arguments, steps in order, results; all are numbers of local values
step        compute (an op of the program on shards, perhaps with bodies), move (a collective
            or a local change of layout) or call (of a function)
local value a value of the program in one layout
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from shardwright.codegen.moves.move import LayoutMove
from shardwright.codegen.moves.paths import Tensor
from shardwright.codegen.ops.layout import LocalLayout
from shardwright.codegen.ops.random_ops import KEY_KINDS
from shardwright.codegen.partition.local.axes import CutAxes
from shardwright.codegen.trace.avals import KEY_BYTES
from shardwright.ir.errors import InputError
from shardwright.ir.program import Line, Op, Program, Value


@dataclass(frozen=True)
class LocalValue:
    """A value of the program, given by its number, in one layout."""

    value: int
    layout: LocalLayout


@dataclass(frozen=True)
class Compute:
    """An op on shards. `operands`, `results`: local values; `moves`: the communications inside the
    op, each with the fetched data as its result."""

    op: Op
    operands: tuple[int, ...]
    results: tuple[int, ...]
    bodies: tuple[LocalBody, ...] = ()
    moves: tuple[MoveValue, ...] = ()
    formed: bool = False  # whether it runs in a local form


@dataclass(frozen=True)
class MoveValue:
    """A layout change of one value, with its reason and the line of the user's code that needs it.

    `again`: whether it was performed before and its result dropped, so that the compiler must not
    reuse that result; `inside`: whether it belongs to a local form and fetches part of the value;
    `known`: whether its data is then already available; `own`: whether the user wrote it, in a
    manual computation.
    """

    change: LayoutMove
    operand: int
    result: int
    reason: str
    line: Line | None
    again: bool = False
    inside: bool = False
    known: bool = False
    own: bool = False

    @property
    def is_sent(self) -> bool:
        """Whether devices communicate. The received bytes alone do not tell: a move inside an op
        may add nothing on the busiest device, and a device's share of a boolean sum may be less
        than a byte."""
        sent = self.change.received > 0 or self.change.op == "all_reduce"
        sent = sent or (self.inside and self.change.op == "permute")
        return sent and not self.known


@dataclass(frozen=True)
class CallFunction:
    function: int
    operands: tuple[int, ...]
    results: tuple[int, ...]


Step = Compute | MoveValue | CallFunction


@dataclass(frozen=True)
class LocalBody:
    """A block of steps. All fields refer to local values by number."""

    arguments: tuple[int, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]


@dataclass(frozen=True)
class LocalProgram:
    """The program that each device runs, lowered from `program`."""

    program: Program
    axes: CutAxes
    values: tuple[LocalValue, ...]
    body: LocalBody
    functions: tuple[LocalBody, ...] = ()
    alike: Mapping[int, int] = field(default_factory=dict, compare=False)
    """For each value that a later call of a function produces, the same value of the first call."""

    def of(self, number: int) -> Value:
        """Return the program's value that a local value stands for."""
        return self.program.values[self.values[number].value]

    def shape(self, number: int) -> tuple[int, ...]:
        """Return the shape of a local value, which is that of a shard."""
        return self.values[number].layout.local(self.of(number).shape, self.axes.sizes)


def taken(step: Step) -> tuple[int, ...]:
    """Return the local values that a step uses."""
    return (step.operand,) if isinstance(step, MoveValue) else step.operands


def made(step: Step) -> tuple[int, ...]:
    """Return the local values that a step produces."""
    return (step.result,) if isinstance(step, MoveValue) else step.results


def calls_of(program: LocalProgram, function: int) -> list[CallFunction]:
    """Return the calls of a function in order of execution."""
    calls = (step for step in program.body.steps if isinstance(step, CallFunction))
    return [call for call in calls if call.function == function]


def moves_of(program: LocalProgram) -> Iterator[tuple[MoveValue, int]]:
    """Yield every layout change in order, with its count: the number of iterations of scans times
    the number of calls of a function. A loop of unknown length counts once."""
    calls = Counter(s.function for s in program.body.steps if isinstance(s, CallFunction))
    called: set[int] = set()
    for step in program.body.steps:
        if isinstance(step, CallFunction):
            if step.function not in called:
                inside = program.functions[step.function].steps
                yield from _moves(inside, calls[step.function])
            called.add(step.function)
        else:
            yield from _moves((step,), 1)


def _moves(steps: Iterable[Step], times: int) -> Iterator[tuple[MoveValue, int]]:
    for step in steps:
        if isinstance(step, MoveValue):
            yield step, times
        elif isinstance(step, Compute):
            yield from ((move, times) for move in step.moves)
            length = step.op.integers("length")[0] if step.op.kind == "scan" else 1
            for inner in step.bodies:
                yield from _moves(inner.steps, times * length)


def where_taken(program: LocalProgram) -> dict[int, str]:
    """Map the result of each layout change inside a `while` loop or a branch, where its count is
    unknown, to a description of that place."""
    found: dict[int, str] = {}
    bodies = [(body, "") for body in (program.body, *program.functions)]
    while bodies:
        body, where = bodies.pop()
        for step in body.steps:
            if isinstance(step, MoveValue):
                found[step.result] = where
            elif isinstance(step, Compute):
                found.update((move.result, where) for move in step.moves)
                for number, inner in enumerate(step.bodies):
                    bodies.append((inner, _inside(step.op, number) or where))
    return {result: where for result, where in found.items() if where}


def _inside(op: Op, body: int) -> str:
    match op.kind:
        case "while":
            return "each iteration" if body else "each loop test"
        case "cond":
            return f"if branch {body} is taken"
    return ""


def item_bytes(dtype: str) -> int:
    """Return the bytes of an element of a dtype in the notation of jaxprs.

    Raise InputError for random keys of a kind unknown to JAX.

    >>> item_bytes("bf16"), item_bytes("key<fry>"), item_bytes("float8_e5m2"), item_bytes("bool")
    (2, 8, 1, 1)
    """
    if dtype.startswith("key<"):
        if dtype not in KEY_BYTES:
            raise InputError(
                "the random key must have a type that JAX supports",
                argument="fn",
                got=dtype,
                expected=f"one of {', '.join(KEY_KINDS.values())}",
            )
        return KEY_BYTES[dtype]
    digits = "".join(filter(str.isdigit, dtype.partition("_")[0].removeprefix("float8")))
    if dtype == "bool" or not digits:
        return 1
    return max(math.ceil(int(digits[:3]) / 8), 1) if not dtype.startswith("float8") else 1


def tensor_of(value: Value, axes: CutAxes) -> Tensor:
    """Return a value as a tensor to move."""
    return Tensor(value.shape, item_bytes(value.dtype), axes.pieces, axes.rates.pace)
