"""The inputs for writing an op, and the expression that results.

An expression is a function with its arguments, or finished text. Shapes are those of shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from shardwright.codegen.ops.layout import LocalLayout
from shardwright.ir.mesh import Mesh
from shardwright.ir.program import Op

Shape = tuple[int, ...]
Expression = str | tuple[str, list[str]]


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

    @property
    def shape(self) -> Shape:
        return self.shapes[len(self.given)]

    @property
    def layout(self) -> LocalLayout:
        return self.layouts[len(self.given)]

    @property
    def dtype(self) -> str:
        return self.dtypes[len(self.given)]

    def has(self, name: str) -> object:
        """Return a parameter, or None if the op lacks it."""
        return dict(self.op.params).get(name)


MakeText = Callable[[OpText], Expression]
