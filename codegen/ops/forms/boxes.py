"""Ops that move rows: slices, splits, concatenations, padding, reversals and permutations along a
split dimension.

A stretch of rows travels unchanged. Stretches of equal length share rounds; there are as many
rounds as the busiest device has transfers.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from shardwright.codegen.ops.build import Builder
from shardwright.codegen.ops.forms.form import (
    FormMove,
    LocalForm,
    OpTensors,
    SplitOp,
)
from shardwright.codegen.ops.forms.halos import Pairs, at_busiest
from shardwright.codegen.ops.forms.shifts import padded_dims
from shardwright.ir.colouring import colouring
from shardwright.ir.program import Op

MOST_ROUNDS = 8
"""The most rounds for the rows of an op. If it needs more, its dimension is gathered."""


@dataclass(frozen=True)
class SpacedRows:
    """`length` rows of an operand that become rows of the result: every `step`-th row from `start`
    on (backwards if `step` is negative) becomes every `apart`-th row from `to` on."""

    place: int  # index of the operand
    start: int
    to: int
    length: int
    step: int = 1
    apart: int = 1

    def borders(self, own: int, extent: int, parts: int) -> list[int]:
        """Return the row numbers in the stretch at which a shard begins or ends, including both
        ends of the stretch. `own`: the rows in a shard of the operand; `extent`: the rows in a
        shard of the result."""
        found = {0, self.length}
        for shard in range(parts + 1):
            row = shard * own
            if self.step > 0:
                found.add(-((self.start - row) // self.step))
            else:
                found.add((self.start - row) // -self.step + 1)
            found.add(-((self.to - shard * extent) // self.apart))
        return sorted(number for number in found if 0 <= number <= self.length)


@dataclass(frozen=True)
class StretchRound:
    """Stretches of equal length, of which each shard sends at most one and receives at most one.

    `starts`: for each shard, the first row of the stretch that it sends, counted in its
    concatenated operands, or None; `places`: for each shard, the row at which it puts the received
    stretch, or None. If `pairs` is empty, every stretch stays on its shard.
    """

    length: int
    pairs: Pairs
    starts: tuple[int | None, ...]
    places: tuple[int | None, ...]


@dataclass(frozen=True)
class _RowBox:
    source: int  # sending and receiving shards
    target: int
    start: int  # first rows in these shards
    place: int
    length: int


@functools.cache
def box_rounds(
    stretches: tuple[SpacedRows, ...], extents: tuple[int, ...], extent: int, parts: int
) -> tuple[StretchRound, ...]:
    """Return the rounds that move stretches into place. `extents`: the rows in a shard of each
    operand; `extent`: the rows in a shard of the result."""
    boxes = list(_boxes(stretches, extents, extent, parts))
    found: list[StretchRound] = []
    for length in sorted({box.length for box in boxes}, reverse=True):
        own = [box for box in boxes if box.length == length]
        found += _rounds([box for box in own if box.source == box.target], parts, False)
        found += _rounds([box for box in own if box.source != box.target], parts, True)
    return tuple(found)


def _boxes(
    stretches: Sequence[SpacedRows], extents: Sequence[int], extent: int, parts: int
) -> Iterator[_RowBox]:
    """Yield the rows that each shard of the result takes from each shard of an operand."""
    for each in stretches:
        before, own = sum(extents[: each.place]), extents[each.place]
        for first, stop in itertools.pairwise(each.borders(own, extent, parts)):
            ends = each.start + first * each.step, each.start + (stop - 1) * each.step
            row, to = min(ends), each.to + first * each.apart
            source, target = row // own, to // extent
            start = before + row - source * own
            yield _RowBox(source, target, start, to - target * extent, stop - first)


def _rounds(boxes: list[_RowBox], parts: int, away: bool) -> Iterator[StretchRound]:
    """Yield the rounds for boxes of equal length. `away`: whether the boxes change shards."""
    if not boxes:
        return
    senders, receivers = np.array([(box.source, box.target) for box in boxes]).T
    most = max(int(np.bincount(ends).max()) for ends in (senders, receivers))
    rounds = colouring(senders, receivers, np.ones(len(boxes), dtype=np.int64), most)
    for number in range(most):
        taken = [box for box, own in zip(boxes, rounds, strict=True) if own == number]
        starts = {box.source: box.start for box in taken}
        places = {box.target: box.place for box in taken}
        yield StretchRound(
            taken[0].length,
            tuple(sorted((box.source, box.target) for box in taken)) if away else (),
            tuple(map(starts.get, range(parts))),
            tuple(map(places.get, range(parts))),
        )


def stretches_along(op: Op, shapes: Sequence[tuple[int, ...]], dim: int, number: int) -> SpacedRows:
    """Return the stretch of an op's only operand that becomes result `number` along a dimension."""
    extent, made = shapes[0][dim], shapes[len(op.operands) + number][dim]
    if op.kind == "split":
        return SpacedRows(0, sum(op.integers("sizes")[:number]), 0, made)
    if op.kind == "slice":
        return SpacedRows(0, op.integers("start_indices")[dim], 0, made, _stride(op, dim))
    if op.kind == "rev":
        return SpacedRows(0, extent - 1, 0, made, -1)
    low, _, between = dict(padded_dims(op))[dim]
    apart = between + 1
    start = max(-(low // apart), 0)
    to = low + start * apart
    length = min(extent - start, -((to - made) // apart))
    return SpacedRows(0, start, to, max(length, 0), 1, apart)


def _stride(op: Op, dim: int) -> int:
    strides = dict(op.params).get("strides")
    return 1 if strides is None else op.integers("strides")[dim]


def put_together(op: Op, shapes: Sequence[tuple[int, ...]], dim: int) -> tuple[SpacedRows, ...]:
    found, to = [], 0
    for place, shape in enumerate(shapes[: len(op.operands)]):
        found.append(SpacedRows(place, 0, to, shape[dim]))
        to += shape[dim]
    return tuple(found)


def stretches_taken(op: Op) -> tuple[SpacedRows, ...]:
    """Return the stretches of a `take_rows` op, in result order."""
    numbers = op.integers("stretches")
    rows = (numbers[at : at + 4] for at in range(0, len(numbers), 4))
    return tuple(SpacedRows(0, *row) for row in rows)


def stretches_of_box(
    op: Op, shapes: Sequence[tuple[int, ...]], dim: int, number: int
) -> tuple[SpacedRows, ...]:
    """Return the stretches that form result `number` of an op along a dimension."""
    if op.kind == "concatenate":
        return put_together(op, shapes, dim)
    if op.kind == "take_rows":
        return stretches_taken(op)
    return (stretches_along(op, shapes, dim, number),)


def box_dims(op: Op, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    if op.kind in ("concatenate", "rev", "take_rows"):
        return op.integers("dimension" if op.kind == "concatenate" else "dimensions")
    if op.kind == "pad":
        return tuple(dim for dim, _ in padded_dims(op))
    pairs = enumerate(zip(shapes[0], shapes[1], strict=True))
    return tuple(dim for dim, (before, after) in pairs if before != after)


def boxes(tensors: OpTensors) -> LocalForm | None:
    """Return the form of an op that moves rows. Return None for random keys, or if no dimension
    along which rows move can be split."""
    op, shapes = tensors.op, tensors.shapes
    ranked = [place for place, shape in enumerate(shapes) if shape]
    if any(value.dtype.startswith("key") for value in tensors.values):
        return None
    moved = box_dims(op, shapes)
    build = Builder(shapes[: tensors.result], shapes[tensors.result :])
    dim_of: dict[int, int] = {}
    for dim in range(len(shapes[0])):
        extents = {place: shapes[place][dim] for place in ranked}
        most = math.gcd(*extents.values())
        if dim in moved and most > 1:
            dim_of[len(build.sizes)] = dim
        kind = "permutation" if dim in moved else "pass"
        build.factor(most, dict.fromkeys(ranked, dim), kind=kind)
        for place, extent in extents.items():
            if dim in moved:
                build.factor(extent // most, {place: dim}, kind="need_replication")

    def takes(factor: int, parts: int) -> bool:
        dim = dim_of.get(factor)
        return dim is None or _count(op, shapes, dim, parts) <= MOST_ROUNDS

    return LocalForm(build.rule(), frozenset(dim_of), _moves, takes) if dim_of else None


def _count(op: Op, shapes: tuple[tuple[int, ...], ...], dim: int, parts: int) -> int:
    count = len(op.operands)
    extents = tuple(shape[dim] // parts for shape in shapes[:count] if shape)
    found = 0
    for number, shape in enumerate(shapes[count:]):
        stretches = stretches_of_box(op, shapes, dim, number)
        rounds = box_rounds(stretches, extents, shape[dim] // parts, parts)
        found += sum(bool(each.pairs) for each in rounds)
    return found


def is_split_as_boxes(tensors: OpTensors) -> bool:
    """Return whether every axis of the mesh divides both operand and result of a slice along the
    longest sliced dimension."""
    pairs = list(zip(tensors.shapes[0], tensors.shapes[1], strict=True))
    cut = [(before, after, d) for d, (before, after) in enumerate(pairs) if before != after]
    if not cut:
        return False
    before, after, _ = max(cut)
    return all(math.gcd(before, after) % size == 0 for size in tensors.pieces)


def _moves(split: SplitOp) -> Iterator[FormMove]:
    op, shapes = split.op, split.tensors.shapes
    first = split.tensors.result
    dims = box_dims(op, shapes)
    shape = dict(enumerate(split.shape(0)))
    if op.kind == "slice":
        shape.update((d, shapes[first][d]) for d in dims if not split.axes(0, d))
    for dim in (dim for dim in dims if split.axes(0, dim)):
        sizes, receivers = [], []
        for number in range(len(op.results)):
            for each in rounds_of(split, dim, number):
                if each.pairs:
                    sizes.append(each.length * split.bytes(0, {**shape, dim: 1}))
                    receivers.append([target for _, target in each.pairs])
        axes = split.axes(0, dim)
        for received in at_busiest(sizes, receivers):
            what = "rows move to the shards of their new places"
            yield FormMove("permute", axes, 0, dim, received, what)
        shape[dim] = split.shape(first)[dim]


def rounds_of(split: SplitOp, dim: int, number: int) -> tuple[StretchRound, ...]:
    """Return the rounds for result `number` along a dimension."""
    op, shapes = split.op, split.tensors.shapes
    first = split.tensors.result
    ranked = [place for place in range(first) if shapes[place]]
    extents = tuple(split.shape(place)[dim] for place in ranked)
    stretches = stretches_of_box(op, shapes, dim, number)
    return box_rounds(stretches, extents, split.shape(first + number)[dim], split.parts(0, dim))
