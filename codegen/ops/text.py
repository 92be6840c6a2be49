"""The inputs for writing an op, and the expression that results.

An expression is a function with its arguments, or finished text. Shapes are those of shards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from shardwright.codegen.ops.layout import LocalLayout
from shardwright.ir.mesh import Mesh
from shardwright.ir.program import Op

Shape = tuple[int, ...]
Call = tuple[str, list[str]]
Expression = str | Call

NUMBER = re.compile(r"jnp\.\w+\(\d+\)")
"""Matches an expression for an integer as an array of rank 0."""

NARROW = {"i8": 2**7 - 1, "u8": 2**8 - 1, "i16": 2**15 - 1, "u16": 2**16 - 1}
"""The largest values of the integer types in which some extents overflow."""


class NamedAxes(Protocol):
    """The axes of a mesh, cut into pieces that have names and sizes."""

    @property
    def mesh(self) -> Mesh: ...

    @property
    def sizes(self) -> Mapping[str, int]: ...

    def ordered(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the pieces `names` in mesh order."""

    def spelled(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the pieces of the mesh axes `names`, major to minor."""


@dataclass(frozen=True)
class OpText:
    """An op with the expressions of its operands, and the types and layouts of its tensors."""

    op: Op
    given: tuple[str, ...]
    shapes: tuple[Shape, ...]  # shapes of shards: of operands, then of results
    dtypes: tuple[str, ...]
    layouts: tuple[LocalLayout, ...]  # of operands, then of results
    axes: NamedAxes
    from_end: tuple[int, ...] = ()  # operands whose negative indices count from the end

    @property
    def shape(self) -> Shape:
        return self.shapes[len(self.given)]

    @property
    def layout(self) -> LocalLayout:
        return self.layouts[len(self.given)]

    @property
    def dtype(self) -> str:
        return self.dtypes[len(self.given)]

    def clamped(self, place: int, extent: int, size: int) -> str:
        """Return the expression of operand `place`, the start of a slice of `size` of `extent`
        elements, clamped to the starts of slices that are within them."""
        start = self.given[place]
        if size == extent or NUMBER.fullmatch(start):
            return start
        return f"jnp.clip({start}, 0, {min(extent - size, NARROW.get(self.dtypes[place], extent))})"

    def has(self, name: str) -> object:
        """Return a parameter, or None if the op lacks it."""
        return dict(self.op.params).get(name)


MakeText = Callable[[OpText], Expression]
