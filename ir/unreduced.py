"""The fate of unreduced axes in a reshard: an axis stays unreduced, is reduced, or is new.

An axis of the source and an axis of the target match if their names and sizes are equal. If only a
part of a sub-axis stays, the sub-axis is cut at the borders of that part.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from shardwright.ir import axes as algebra
from shardwright.ir.axes import AxisRef
from shardwright.ir.errors import InputError
from shardwright.ir.sharding import Sharding

Refs = tuple[AxisRef, ...]


@dataclass(frozen=True)
class Fate:
    """The unreduced axes of a reshard, divided into axes that stay unreduced, are reduced, or
    are new."""

    kept: Refs  # unreduced in source and target, in the order of the source's mesh
    reduced: Refs  # unreduced only in the source
    new: Refs  # unreduced only in the target

    @staticmethod
    def of(source: Sharding, target: Sharding) -> Fate:
        """Return the fate of the unreduced axes of source and target.

        Raises InputError for sub-axes that cannot coexist, and if axes stay unreduced but their
        operator changes.
        """
        kept = source.mesh.ordered(_shared(source, target))
        if kept and source.operator != target.operator:
            raise InputError(
                "axes that stay unreduced must keep their operator",
                argument="target",
                got=f"{target}, from {source}",
                expected=f"unreduced={'' if source.operator == 'sum' else source.operator}{{…}}",
            )
        rests = (tuple(_rest(side, kept)) for side in (source, target))
        return Fate(kept, *rests)


NONE = Fate((), (), ())
"""The fate in a reshard without unreduced axes."""


def _shared(source: Sharding, target: Sharding) -> Iterator[AxisRef]:
    sizes = source.mesh.sizes
    for one, other in itertools.product(source.unreduced, target.unreduced):
        if one.name != other.name or sizes[one.name] != target.mesh.sizes[one.name]:
            continue
        if not algebra.can_coexist(one, other, sizes):
            raise InputError(
                "unreduced sub-axes of both sides must fit one factorization of their axis",
                argument="target",
                got=f'{one} in source, {other} in target, of "{one.name}"={sizes[one.name]}',
                expected="each border a multiple of the previous border",
            )
        part = _common(one, other, sizes[one.name])
        if part is not None:
            yield part


def _common(one: AxisRef, other: AxisRef, size: int) -> AxisRef | None:
    if one == other:
        return one
    (low, high), (start, end) = algebra.borders(one, size), algebra.borders(other, size)
    low, high = max(low, start), min(high, end)
    return algebra.between(one.name, low, high, size) if low < high else None


def _rest(side: Sharding, kept: Refs) -> Iterator[AxisRef]:
    for ref in side.unreduced:
        size = side.mesh.axis_size(ref.name)
        low, high = algebra.borders(ref, size)
        inside = [algebra.borders(part, size) for part in kept if _is_of(part, ref, side)]
        if ref in kept or (low, high) in inside:
            continue
        at = low
        for start, end in [*sorted(inside), (high, high)]:
            if at < start:
                yield algebra.between(ref.name, at, start, size)
            at = end
        if low == high:  # an axis of size 1, which the loop above does not yield
            yield ref


def _is_of(part: AxisRef, ref: AxisRef, side: Sharding) -> bool:
    return part.name == ref.name and algebra.contains(ref, part, side.mesh.sizes)
