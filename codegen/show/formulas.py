"""The layout map and its inverse, in symbols for every size or in the numbers of one reshard.

    d(m, n)[k, l] -> t[m * (K ceildiv M) + k, n * (L ceildiv N) + l]
    t[i, j] -> d(i floordiv (K ceildiv M), j floordiv (L ceildiv N))[i % (K ceildiv M), ...]

K, L are the extents of the tensor, M, N the sizes of the mesh axes, m, n the coordinates of a
device. The maps are those of `ir/layout.py`, applied to symbols.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import sympy

from shardwright.codegen.show.notation import text
from shardwright.codegen.show.symbols import SOURCE, Axis, Letters, axes_of, in_pieces
from shardwright.codegen.show.where import Where, where_lines
from shardwright.ir.algebra.identities import simplify
from shardwright.ir.algebra.index import Index, Value, extent_symbol
from shardwright.ir.axes import AxisRef
from shardwright.ir.cuts import unnamed
from shardwright.ir.layout import DimLayout, Split, digit_values
from shardwright.ir.mesh import Digit
from shardwright.ir.sharding import Operator, Sharding


@dataclass(frozen=True)
class Formula:
    """A map as text, with lines that define the names in it."""

    text: str
    where: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([self.text, *(f"    {line}" for line in self.where)])


@dataclass(frozen=True)
class LayoutMap:
    """A layout as a map between local indices of devices and elements of the tensor."""

    axes: tuple[Axis, ...]
    dims: tuple[DimLayout, ...]
    refs: tuple[tuple[AxisRef, ...], ...]  # the axis references that split each dimension
    unreduced: tuple[AxisRef, ...]
    operator: Operator
    letters: Letters

    @property
    def coordinates(self) -> tuple[Index, ...]:
        """The coordinates of a device: an index for each mesh axis."""
        return tuple(axis.coordinate for axis in self.axes)

    @cached_property
    def position(self) -> Value:
        """The row-major position of a device in its mesh."""
        return sum((axis.coordinate * axis.stride for axis in self.axes), sympy.Integer(0))

    @cached_property
    def local(self) -> tuple[Index, ...]:
        """The local indices of the largest shard."""
        return self._indices("local", tuple(dim.size for dim in self.dims))

    @cached_property
    def elements(self) -> tuple[Index, ...]:
        """The indices of a tensor element."""
        return self._indices("elements", tuple(dim.extent for dim in self.dims))

    def _indices(self, kind: str, extents: tuple[Value, ...]) -> tuple[Index, ...]:
        names = (self.letters.name(kind, i, len(extents)) for i in range(len(extents)))
        return tuple(Index(name, extent) for name, extent in zip(names, extents, strict=True))

    @cached_property
    def shard(self) -> tuple[Value, ...]:
        """The index of a device's shard along each dimension, in terms of the coordinates."""
        return tuple(dim.index(self.position) for dim in self.dims)

    @property
    def free(self) -> tuple[AxisRef, ...]:
        """The pieces of axes along which the layout only replicates, in mesh order."""
        taken = {*self.unreduced, *(ref for refs in self.refs for ref in refs)}
        return tuple(ref for axis in self.axes for ref, _ in axis.pieces if ref not in taken)

    def piece(self, ref: AxisRef) -> Digit:
        """Return the digit of a device's position that corresponds to a piece of an axis."""
        return next(digit for axis in self.axes for own, digit in axis.pieces if own == ref)

    def own_value(self, ref: AxisRef) -> Value:
        """Return the value of a piece of an axis, in terms of the coordinates."""
        return _digit_of(self.piece(ref), self.position)

    def to_tensor(self, lets: tuple[Where, ...] | None = None) -> tuple[Value, ...]:
        """Return the tensor element at the coordinates and local indices: `t[...]` of the map."""
        named = tuple(where.let for where in lets) if lets else (unnamed,) * len(self.dims)
        return tuple(
            dim.element(index, local, let)
            for dim, index, local, let in zip(self.dims, self.shard, self.local, named, strict=True)
        )

    def to_device(
        self,
        elements: tuple[Value, ...],
        others: Callable[[AxisRef], Value],
        lets: tuple[Where, ...] | None = None,
    ) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        """Return the coordinates and local indices of a tensor element: `d(...)[...]` of the
        inverse.

        `others`: returns the value of a piece that the elements do not determine.
        """
        named = tuple(where.let for where in lets) if lets else (unnamed,) * len(self.dims)
        values: dict[AxisRef, Value] = {}
        local: list[Value] = []
        for dim, refs, element, let in zip(self.dims, self.refs, elements, named, strict=True):
            index, rest = dim.locate(element, let)
            values |= zip(refs, digit_values(dim.axis_digits, index), strict=True)
            local.append(rest)
        coordinates = (self.coordinate(axis, values, others) for axis in self.axes)
        return tuple(coordinates), tuple(local)

    @staticmethod
    def coordinate(
        axis: Axis, values: dict[AxisRef, Value], others: Callable[[AxisRef], Value]
    ) -> Value:
        total: Value = sympy.Integer(0)
        for ref, digit in axis.pieces:
            value = values[ref] if ref in values else others(ref)
            total = total * digit.size + value
        return simplify(total) if len(axis.pieces) > 1 else total

    def forward_text(self, device: str = "d") -> Formula:
        """Return `d(m, n)[k, l] -> t[...]`."""
        lets = self._lets()
        names = tuple(index.name for index in self.local)
        results = [text(value, names) for value in self.to_tensor(lets)]
        left = f"{device}({listed(self.coordinates)})[{listed(self.local)}]"
        if self.unreduced:
            left = f"{self._sum} {left}"
        return Formula(f"{left} -> t[{', '.join(results)}]", where_lines(lets, results))

    def inverse_text(self, device: str = "d") -> Formula:
        """Return `t[i, j] -> d(...)[...]`, with `*` for the coordinate of a replicating axis."""
        lets = self._lets()
        coordinates, local = self.to_device(self.elements, self.any_value, lets)
        placed = [text(value) for value in coordinates]
        rests = [text(value) for value in local]
        right = f"{device}({', '.join(placed)})[{', '.join(rests)}]"
        if self.unreduced:
            right = f"{self._sum} {right}"
        every = [f"for every {name} in [0, {text(size)})" for name, size in self._parts_of_axes()]
        line = f"t[{listed(self.elements)}] -> {right}" + "".join(f" {part}" for part in every)
        return Formula(line, where_lines(lets, [*placed, *rests]))

    @property
    def _sum(self) -> str:
        names = (index.name for index in map(self._own_index, self.unreduced))
        return f"{self.operator} over {', '.join(dict.fromkeys(names))} of"

    def _own_index(self, ref: AxisRef) -> Index:
        return next(axis.coordinate for axis in self.axes if axis.name == ref.name)

    def any_value(self, ref: AxisRef) -> Value:
        if ref in self.unreduced:
            return self.own_value(ref)
        if ref.pre is None:
            return Index("*", self.piece(ref).size)
        return Index(self._part_name(ref), self.piece(ref).size)

    def _part_name(self, ref: AxisRef) -> str:
        parts = [other for other in self.free if other.pre is not None]
        return "r" if len(parts) == 1 else f"r{parts.index(ref)}"

    def _parts_of_axes(self) -> tuple[tuple[str, Value], ...]:
        return tuple(
            (self._part_name(ref), self.piece(ref).size) for ref in self.free if ref.pre is not None
        )

    def _lets(self) -> tuple[Where, ...]:
        nested = [axis for axis, dim in enumerate(self.dims) if not dim.is_flat]
        return tuple(
            Where(dim.levels, f"{axis}_" if len(nested) > 1 else "")
            for axis, dim in enumerate(self.dims)
        )


def _digit_of(digit: Digit, position: Value) -> Value:
    return DimLayout(digit.size, (digit,)).index(position)


def listed(indices: tuple[Index, ...]) -> str:
    return ", ".join(index.name for index in indices)


def layout_map(
    sharding: Sharding,
    shape: tuple[Value, ...] | None = None,
    split: str = "flat",
    letters: Letters = SOURCE,
    refs: tuple[AxisRef, ...] = (),
) -> LayoutMap:
    """Return the map of a sharding: in numbers if a shape is given, else in symbols.

    Axes are also cut at the borders of `refs`.
    """
    own = (*sharding.used(), *sharding.unreduced)
    axes = axes_of(sharding.mesh, (*own, *refs), letters, symbols=shape is None)
    digits = {ref: digit for axis in axes for ref, digit in axis.pieces}
    pieces = [in_pieces(dim.axes, sharding.mesh, tuple(digits)) for dim in sharding.dims]
    extents = shape
    if extents is None:
        names = (letters.name("extents", i, sharding.rank) for i in range(sharding.rank))
        extents = tuple(map(extent_symbol, names))
    kind: Split = "nested" if split == "nested" else "flat"
    dims = tuple(
        DimLayout(extent, tuple(digits[ref] for ref in refs), kind)
        for extent, refs in zip(extents, pieces, strict=True)
    )
    unreduced = in_pieces(sharding.unreduced, sharding.mesh, tuple(digits))
    return LayoutMap(axes, dims, tuple(pieces), unreduced, sharding.operator, letters)
