"""Shifts along a dimension: rolls, padded slices, and concatenations of slices.

A jaxpr expresses a shift by several ops, whose intermediate values have one row too many or too few
to be split evenly. They become one op, `shift`, whose result consists of stretches of its operands
at given rows, and of a fill value elsewhere. On shards, neighbours exchange rows so that every
operand is rotated around the ring of shards, and a mask selects each stretch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shardwright.codegen.ops.forms.form import (
    FormMove,
    LocalForm,
    OpTensors,
    SplitOp,
)
from shardwright.ir.program import Op


@dataclass(frozen=True)
class Stretch:
    """`length` rows of an operand, from `start` on, that become the rows of the result from `to`
    on."""

    place: int  # index of the operand
    start: int
    to: int
    length: int


@dataclass(frozen=True)
class RingPart:
    """Rows `low` to `high` of the shard that is `hops` positions before a device's own. `needed`:
    whether any device uses them."""

    hops: int
    low: int
    high: int
    needed: bool


@dataclass(frozen=True)
class RingShift:
    """An operand rotated by `by` rows, and the stretches that need this rotation. `parts`: the
    parts of which a rotated shard consists, in order."""

    place: int
    by: int
    stretches: tuple[Stretch, ...]
    parts: tuple[RingPart, ...]


def stretches_of(op: Op) -> tuple[Stretch, ...]:
    """Return the stretches of a `shift` op, in result order."""
    numbers = op.integers("stretches")
    rows = (numbers[at : at + 4] for at in range(0, len(numbers), 4))
    return tuple(sorted((Stretch(*row) for row in rows), key=lambda each: each.to))


def shifts_of(op: Op, places: Sequence[int], extent: int, parts: int) -> Iterator[RingShift]:
    """Yield the rotations of the split operands `places`. `extent`: the rows in a shard; `parts`:
    the number of shards."""
    groups: dict[tuple[int, int], list[Stretch]] = {}
    for each in stretches_of(op):
        if each.place in places:
            by = (each.to - each.start) % (extent * parts)
            groups.setdefault((each.place, by), []).append(each)
    for (place, by), stretches in groups.items():
        hops, rest = divmod(by, extent)
        both = ((hops + 1, extent - rest, extent, 0), (hops, 0, extent - rest, rest))
        found = tuple(
            RingPart(n % parts, low, high, _needed(stretches, at, high - low, extent, parts))
            for n, low, high, at in both
            if high > low
        )
        yield RingShift(place, by, tuple(stretches), found)


def _needed(stretches: list[Stretch], at: int, length: int, extent: int, parts: int) -> bool:
    """Return whether any device uses rows of a part. `at`: the part's first row in the rotated
    shard."""
    firsts = [number * extent + at for number in range(parts)]
    return any(
        first < each.to + each.length and each.to < first + length
        for each in stretches
        for first in firsts
    )


def ring_places(tensors: OpTensors) -> tuple[int, ...]:
    """Return the indices of the operands that are as long as the result: only these can be
    split."""
    (dim,) = tensors.op.integers("dimension")
    extent = tensors.shapes[tensors.result][dim]
    return tuple(
        place
        for place, shape in enumerate(tensors.shapes[: tensors.result])
        if shape and shape[dim] == extent
    )


def shift(tensors: OpTensors) -> LocalForm:
    (dim,) = tensors.op.integers("dimension")
    factor = tensors.factor(tensors.result, dim)
    return LocalForm(replace(tensors.rule, permutation=()), frozenset({factor}), _halos)


def _halos(split: SplitOp) -> Iterator[FormMove]:
    (dim,) = split.op.integers("dimension")
    places = ring_places(split.tensors)
    axes = split.axes(places[0], dim)
    extent = split.shape(places[0])[dim]
    for shift in shifts_of(split.op, places, extent, split.parts(places[0], dim)):
        for part in shift.parts:
            if part.hops and part.needed:
                count = part.high - part.low
                size = split.bytes(shift.place, {dim: count})
                rows = "a row" if count == 1 else f"{count} rows"
                what = f"{rows} of each shard {'go' if count > 1 else 'goes'} to another one"
                yield FormMove("permute", axes, shift.place, dim, size, what)


def padded_dims(op: Op) -> list[tuple[int, tuple[int, int, int]]]:
    """Return the dimensions that a pad extends or crops, each with the number of rows added before,
    after, and between rows. Negative numbers crop."""
    config = op.param("padding_config")
    found = []
    for dim, own in enumerate(config if isinstance(config, tuple) else ()):
        numbers = own if isinstance(own, tuple) else ()
        low, high, inner = (int(n) if isinstance(n, int) else 0 for n in numbers)
        if (low, high, inner) != (0, 0, 0):
            found.append((dim, (low, high, inner)))
    return found
