"""The tools for writing a local form."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shardwright.codegen.ops.collective_text import gather_call
from shardwright.codegen.ops.layout import Names
from shardwright.codegen.ops.text import Expression, MakeText, OpText
from shardwright.ir.axes import axes_text


@dataclass(frozen=True)
class FormLine:
    """One assignment. `moves`: whether it performs the form's next communication; `said`: a comment
    on it and the lines after it, or "". With an empty `target`, the value already exists, so no
    statement is written."""

    target: str
    made: Expression
    moves: bool = False
    said: str = ""


@dataclass(frozen=True)
class FormText:
    """An op whose form is to be written: its texts, the names of its results, and a source of fresh
    names.

    Methods take a tensor as `place`, its index among the operands followed by the results.
    """

    text: OpText
    plain: MakeText  # writes the op along dimensions that are not split
    results: tuple[str, ...]
    fresh: Callable[[str], str]
    made: dict[str, str]  # names of the rows of other shards that earlier forms fetched, by key
    checked: bool  # whether the program runs under `check_vma`

    @property
    def given(self) -> tuple[str, ...]:
        return self.text.given

    def axes(self, place: int, dim: int) -> Names:
        """Return the axes that split a dimension of a tensor."""
        return self.text.layouts[place].dims[dim]

    def parts(self, place: int, dim: int) -> int:
        sizes = self.text.axes.sizes
        return math.prod(sizes[name] for name in self.axes(place, dim))

    def extent(self, place: int, dim: int) -> int:
        return self.text.shapes[place][dim]

    def whole(self, place: int) -> tuple[int, ...]:
        shape = self.text.shapes[place]
        return tuple(extent * self.parts(place, dim) for dim, extent in enumerate(shape))

    def positions(self, place: int, dim: int) -> list[int]:
        """Return the device number of each shard along a dimension. Shards are in the order of the
        axes that split it; devices are numbered with these axes in mesh order."""
        axes, sizes = self.axes(place, dim), self.text.axes.sizes
        ordered, found = self.text.axes.ordered(axes), []
        for each in itertools.product(*(range(sizes[name]) for name in axes)):
            own, number = dict(zip(axes, each, strict=True)), 0
            for name in ordered:
                number = number * sizes[name] + own[name]
            found.append(number)
        return found

    def at(self, place: int, dim: int) -> str:
        """Return the expression for the number of this device's shard along a dimension."""
        return f"lax.axis_index({axes_text(self.axes(place, dim))})"

    def local(self, name: str) -> str:
        """Return a fresh name for an intermediate value of the form."""
        return self.fresh(f"{self.results[0]}_{name}")

    def gathered(self, target: str, given: str, place: int, dim: int, along: int) -> FormLine:
        """Return the statement that gathers pieces over the axes that split a dimension,
        concatenated along dimension `along`."""
        made = gather_call(given, self.axes(place, dim), along, self.checked)
        return FormLine(target, made, moves=True)


FormLines = Iterator[FormLine]
