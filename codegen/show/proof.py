"""Proof, by the identity table, that a layout map and its inverse are inverses of each other.

The sizes of the tensor and the mesh are symbols, so a proof holds for all sizes. A nested
split is proved by induction over its levels: it is a flat split of the extent, followed by a nested
split of the chunk in fewer parts; each level is proved for a chunk of any extent, and the levels'
digits are the digits of the shard index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import sympy

from shardwright.codegen.show.formulas import LayoutMap, layout_map
from shardwright.codegen.show.symbols import Axis
from shardwright.ir.algebra.bounds import is_less, is_nonnegative
from shardwright.ir.algebra.identities import equal
from shardwright.ir.algebra.index import Index, Value, extent_symbol
from shardwright.ir.axes import AxisRef
from shardwright.ir.layout import DimLayout, digit_values
from shardwright.ir.mesh import Digit
from shardwright.ir.sharding import Sharding


@dataclass(frozen=True)
class Claim:
    """A statement about the two maps, and whether the identities prove it."""

    statement: str
    holds: bool


@dataclass(frozen=True)
class Proof:
    """Claims that together imply that the maps are inverses of each other."""

    claims: tuple[Claim, ...]

    @property
    def holds(self) -> bool:
        """Return whether all claims are proved."""
        return all(claim.holds for claim in self.claims)

    def __str__(self) -> str:
        if self.holds:
            return f"proved for all sizes by the identities, {len(self.claims)} steps"
        failed = "; ".join(claim.statement for claim in self.claims if not claim.holds)
        return f"not proved: {failed}"


@lru_cache(maxsize=256)
def prove_roundtrip(sharding: Sharding, split: str = "flat") -> Proof:
    """Prove that `t` after `d` and `d` after `t` are the identity, for all sizes."""
    layout = layout_map(sharding, split=split)
    return Proof((*_of_elements(layout), *_of_devices(layout)))


def _of_elements(layout: LayoutMap) -> Iterator[Claim]:
    """Yield the claims that the two maps are inverses of each other along every dimension, and
    that every element is in a shard."""
    for axis, dim in enumerate(layout.dims):
        if dim.is_flat:
            index, local = layout.shard[axis], layout.local[axis]
            yield from _of_level(dim, index, local, f"dimension {axis}")
        else:
            yield from _of_levels(dim, axis)


def _of_levels(dim: DimLayout, axis: int) -> Iterator[Claim]:
    for level, parts in enumerate(dim.levels, 1):
        chunk = DimLayout(extent_symbol("chunk"), (Digit(1, parts),))
        index, local = Index("index", parts), Index("local", chunk.size)
        yield from _of_level(chunk, index, local, f"dimension {axis}, level {level}")


def _of_level(dim: DimLayout, index: Value, local: Value, where: str) -> Iterator[Claim]:
    found, rest = dim.locate(dim.element(index, local))
    yield Claim(f"t after d keeps the shard index of {where}", equal(found, index))
    yield Claim(f"t after d keeps the local index of {where}", equal(rest, local))
    element = Index("element", dim.extent)
    found, rest = dim.locate(element)
    yield Claim(f"d after t keeps the element of {where}", equal(dim.element(found, rest), element))
    yield Claim(f"d after t ends in a shard of {where}", _is_in(found, dim.parts))
    yield Claim(f"d after t ends inside a shard of {where}", _is_in(rest, dim.size))


def _is_in(value: Value, extent: Value) -> bool:
    return is_nonnegative(value) and is_less(value, extent)


def _of_devices(layout: LayoutMap) -> Iterator[Claim]:
    """Yield the claims that a device's coordinates follow from its shard indices and from the
    coordinates of replicas, and that every holder of a shard has the shard's index."""
    values: dict[AxisRef, Value] = {}
    for dim, refs, index in zip(layout.dims, layout.refs, layout.shard, strict=True):
        values |= zip(refs, digit_values(dim.axis_digits, index), strict=True)
    for axis in layout.axes:
        again = layout.coordinate(axis, values, layout.own_value)
        yield Claim(f'd keeps the coordinate along "{axis.name}"', equal(again, axis.coordinate))
    shards = tuple(_index(f"shard{axis}", dim.parts) for axis, dim in enumerate(layout.dims))
    placed = _position(layout, shards)
    for number, (dim, index) in enumerate(zip(layout.dims, shards, strict=True)):
        yield Claim(
            f"a device of a shard of dimension {number} has its index",
            equal(dim.index(placed), index),
        )


def _position(layout: LayoutMap, shards: tuple[Value, ...]) -> Value:
    values: dict[AxisRef, Value] = {}
    for dim, refs, index in zip(layout.dims, layout.refs, shards, strict=True):
        values |= zip(refs, digit_values(dim.axis_digits, index), strict=True)

    def any_holder(ref: AxisRef) -> Value:
        return Index(f"holder {ref}", layout.piece(ref).size)

    def part(axis: Axis) -> Value:
        return layout.coordinate(axis, values, any_holder) * axis.stride

    return sum(map(part, layout.axes), sympy.Integer(0))


def _index(name: str, extent: Value) -> Value:
    return sympy.Integer(0) if extent == 1 else Index(name, extent)
