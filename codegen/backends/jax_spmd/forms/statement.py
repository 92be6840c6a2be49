"""The tools for writing a local form."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shardwright.codegen.backends.jax_spmd.changes import axes_text, gather_call
from shardwright.codegen.backends.jax_spmd.expressions import Expression, OpText
from shardwright.codegen.partition.local.layout import Names


@dataclass(frozen=True)
class FormLine:
    """One assignment; `moves`: whether it makes the form's next communication. Without a target
    nothing is written, because the value already exists."""

    target: str
    made: Expression
    moves: bool = False


@dataclass(frozen=True)
class FormText:
    """An op to be written as a form: its texts, the names of its results, and a source of fresh
    names."""

    text: OpText
    results: tuple[str, ...]
    fresh: Callable[[str], str]
    made: dict[str, str]  # names of rows of other shards that earlier forms fetched, by key
    checked: bool  # whether it stands under `check_vma`

    @property
    def given(self) -> tuple[str, ...]:
        return self.text.given

    def axes(self, place: int, dim: int) -> Names:
        """Return the axes that split a dimension of a tensor."""
        return self.text.layouts[place].dims[dim]

    def parts(self, place: int, dim: int) -> int:
        """Return the number of shards of a dimension."""
        sizes = self.text.axes.sizes
        return math.prod(sizes[name] for name in self.axes(place, dim))

    def extent(self, place: int, dim: int) -> int:
        """Return the extent of a dimension of a shard."""
        return self.text.shapes[place][dim]

    def whole(self, place: int) -> tuple[int, ...]:
        """Return the shape of a whole tensor."""
        shape = self.text.shapes[place]
        return tuple(extent * self.parts(place, dim) for dim, extent in enumerate(shape))

    def positions(self, place: int, dim: int) -> list[int]:
        """Return for each shard along a dimension, in the order of the axes that split it, its
        device's number when these axes are in mesh order."""
        axes, sizes = self.axes(place, dim), self.text.axes.sizes
        ordered, found = self.text.axes.ordered(axes), []
        for each in itertools.product(*(range(sizes[name]) for name in axes)):
            own, number = dict(zip(axes, each, strict=True)), 0
            for name in ordered:
                number = number * sizes[name] + own[name]
            found.append(number)
        return found

    def at(self, place: int, dim: int) -> str:
        """Return the number of this device's shard along a dimension."""
        return f"lax.axis_index({axes_text(self.axes(place, dim))})"

    def local(self, name: str) -> str:
        """Return a name for an intermediate value of the form."""
        return self.fresh(f"{self.results[0]}_{name}")

    def gathered(self, target: str, given: str, place: int, dim: int, along: int) -> FormLine:
        """Return a gather over the axes that split a dimension, of pieces concatenated along
        `along`."""
        made = gather_call(given, self.axes(place, dim), along, self.checked)
        return FormLine(target, made, moves=True)


FormLines = Iterator[FormLine]
