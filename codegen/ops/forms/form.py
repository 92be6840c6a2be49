"""The definition of a local form, and the description of an op from which it is made."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass

from shardwright.codegen.ops.layout import LocalLayout, Names
from shardwright.ir.program import Op, Rule, Value

Shape = tuple[int, ...]
UNADDED = frozenset({"bool", "float8_e8m0fnu"})
"""The dtypes, in addition to random keys, that cannot be summed over devices. float8_e8m0fnu has no
zero for the other terms."""


@dataclass(frozen=True)
class OpTensors:
    """An op with its rule, its tensors (operands first), and the sizes of pieces of axes. Methods
    take a tensor as `place`, its index in this order."""

    op: Op
    rule: Rule
    values: tuple[Value, ...]
    pieces: tuple[int, ...]

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return tuple(value.shape for value in self.values)

    @property
    def result(self) -> int:
        """The index of the first result among the tensors."""
        return len(self.op.operands)

    def factor(self, place: int, dim: int) -> int:
        """Return the first factor of a dimension, along which the dimension is cut into blocks."""
        return self.rule.tensors[place][dim][0]

    @property
    def is_added(self) -> bool:
        """Whether the first result can be a partial sum."""
        dtype = self.values[self.result].dtype
        return dtype not in UNADDED and not dtype.startswith("key")


@dataclass(frozen=True)
class FormMove:
    """One communication inside a form. It fetches part of an operand for a stated purpose,
    `what`."""

    op: str  # a collective, such as all_gather
    axes: Names
    place: int  # index of the operand
    dim: int  # dimension of the operand along which the op is split
    received: int  # bytes that each device receives
    what: str
    # identifies the fetched data, because another op may need the same data
    rows: Hashable = None


@dataclass(frozen=True)
class SplitOp:
    """An op with the layouts of its tensors."""

    tensors: OpTensors
    layouts: tuple[LocalLayout, ...]
    sizes: Mapping[str, int]
    items: tuple[int, ...]  # bytes per element of each tensor

    @property
    def op(self) -> Op:
        return self.tensors.op

    def axes(self, place: int, dim: int) -> Names:
        return self.layouts[place].dims[dim]

    def parts(self, place: int, dim: int) -> int:
        return math.prod(self.sizes[name] for name in self.axes(place, dim))

    def shape(self, place: int) -> Shape:
        return self.layouts[place].local(self.tensors.shapes[place], self.sizes)

    def bytes(self, place: int, extents: Mapping[int, int] | None = None) -> int:
        """Return the bytes of a tensor's shard. `extents`: extents that replace those of the shard,
        by dimension."""
        shape = {**dict(enumerate(self.shape(place))), **(extents or {})}
        return math.prod(shape.values()) * self.items[place]

    def gathered(self, place: int, dim: int, received: int, what: str) -> FormMove:
        """Return a gather along the axes that split a dimension. `received`: the bytes of the piece
        that a device receives from each other device."""
        others = self.parts(place, dim) - 1
        return FormMove("all_gather", self.axes(place, dim), place, dim, others * received, what)


def nothing(split: SplitOp) -> Iterator[FormMove]:
    yield from ()


def any_parts(factor: int, parts: int) -> bool:
    """Return True: the factor can be split into any number of equal parts."""
    return True


@dataclass(frozen=True)
class LocalForm:
    """A way to run an op on shards that communicate. `factors`: the factors of `rule` that can be
    split; `moves`: a function that yields the communications; `takes`: a function that returns
    whether a factor can be split into a number of parts."""

    rule: Rule
    factors: frozenset[int]
    moves: Callable[[SplitOp], Iterator[FormMove]] = nothing
    takes: Callable[[int, int], bool] = any_parts
