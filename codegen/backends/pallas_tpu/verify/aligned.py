"""Check, from the devices' events, that a kernel without packing copies every tile to the right
place in the tensor, and that its results are complete.

A window of a shard is a box of the tensor, and so are a slot's contents: each copy must read and
write the same box. Data that is forwarded from a result or a slot must have arrived there; `reuse`
checks that the device has waited for it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np

from shardwright.codegen.backends.pallas_tpu.verify.events import Copy, Window
from shardwright.codegen.backends.pallas_tpu.verify.order import Counts, Traces, count
from shardwright.codegen.backends.pallas_tpu.verify.trace import Event
from shardwright.codegen.checks.clocks import carry_out
from shardwright.codegen.checks.compare import MismatchError
from shardwright.ir.algebra.index import Integers

Box = tuple[tuple[int, int], ...]
"""The range (low, high) in the tensor along each dimension, in the kernel's dimension order."""
SOURCE, RESULT, SLOTS = "x", "y", "slots"


def check_aligned(program: Any, traces: Traces) -> None:
    """Raise MismatchError if a copy writes a box of the tensor to the place of another box, if it
    reads a box that has not arrived, or if a result is incomplete at the end."""
    held: list[list[Box]] = [[] for _ in traces]
    slots = _Between(program)
    counts: Counts = Counts()

    def step(rank: int, event: Event) -> bool:
        if isinstance(event, Copy):
            if event.read.buffer == SLOTS:
                read = slots.box(rank, event.read)
            else:
                read = _box(program, rank, event.read)
            if event.write.buffer == SLOTS:
                slots.fill(event.to, event.write, read)
                return count(counts, rank, event)
            write = _box(program, event.to, event.write)
            if read != write:
                raise MismatchError(
                    f"rank {rank} sends {_said(read)} of the tensor to the place of "
                    f"{_said(write)} of rank {event.to}"
                )
            if event.read.buffer == RESULT and _covered(read, held[rank]) < _volume(read):
                raise MismatchError(f"rank {rank} sends {_said(read)}, which it has not received")
            held[event.to].append(write)
        return count(counts, rank, event)

    carry_out(traces, step)
    peers = program.peers
    for rank, boxes in enumerate(held):
        if peers.here(program.order, rank)[1] not in range(len(peers.target.ids)):
            continue  # this device has no result
        whole = _whole(program, rank, RESULT)
        found = _covered(whole, boxes)
        if found < _volume(whole):
            raise MismatchError(
                f"rank {rank} receives {found} elements of its result, expected: {_volume(whole)}"
            )


class _Between:
    """The contents of slots. `_held`: the ranges (low, high) along the first dimension of every
    (rank, slot), each with the box of the tile whose part is there. A part is at the same position
    in the slot as in its tile."""

    def __init__(self, program: Any) -> None:
        self._program = program
        self._held: dict[tuple[int, int], list[tuple[int, int, Box]]] = defaultdict(list)

    def _place(self, window: Window) -> tuple[int, tuple[tuple[int, int], ...]]:
        """Return the number of a window's slot, and the window's ranges within the slot. Slots of
        vectors are stacked along one dimension."""
        (first, size), *rest = window.ranges
        if rest:
            return first, tuple(rest)
        return first // self._program.room, ((first % self._program.room, size),)

    def fill(self, rank: int, window: Window, box: Box) -> None:
        """Record that a box was written to a window of a slot. Raises MismatchError if their
        extents differ, or if the window does not start at 0 along every dimension but the first."""
        slot, ((begin, size), *rest) = self._place(window)
        sizes = (size, *(extent for _, extent in rest))
        if tuple(high - low for low, high in box) != sizes or any(start for start, _ in rest):
            raise MismatchError(f"{_said(box)} arrives at the wrong place in a slot of rank {rank}")
        tile = ((box[0][0] - begin, box[0][0] - begin), *box[1:])
        parts = self._held[rank, slot]
        kept = [
            (low, high, other)
            for start, end, other in parts
            for low, high in ((start, min(end, begin)), (max(start, begin + size), end))
            if low < high
        ]
        parts[:] = [*kept, (begin, begin + size, tile)]

    def box(self, rank: int, window: Window) -> Box:
        """Return the box that a window of a slot holds. Raises MismatchError unless a single tile
        fills the whole window."""
        slot, ((begin, size), *_) = self._place(window)
        found = [
            (min(high, begin + size) - max(low, begin), tile)
            for low, high, tile in self._held[rank, slot]
            if low < begin + size and begin < high
        ]
        tiles = {tile for _, tile in found}
        if len(tiles) != 1 or sum(extent for extent, _ in found) < size:
            raise MismatchError(
                f"rank {rank} sends {size} elements from {begin} of slot {slot}, which holds "
                f"{sum(extent for extent, _ in found)} of them, of {len(tiles)} tiles"
            )
        (tile,) = tiles
        first = tile[0][0] + begin
        return ((first, first + size), *tile[1:])


def _whole(program: Any, rank: int, buffer: str) -> Box:
    side = program.host.source if buffer == SOURCE else program.host.target
    box = side.box(program.peers.here(program.order, rank)[0 if buffer == SOURCE else 1])
    return tuple((int(box[2 * axis]), int(box[2 * axis + 1])) for axis in program.view)


def _box(program: Any, rank: int, window: Window) -> Box:
    whole = _whole(program, rank, window.buffer)
    pairs = zip(whole, window.ranges, strict=True)
    return tuple((low + start, low + start + size) for (low, _), (start, size) in pairs)


def _covered(box: Box, others: list[Box]) -> int:
    """Return how many elements of a box are in other boxes. The other boxes must be disjoint, which
    `protocol` checks."""
    if not others:
        return 0
    ends: Integers = np.array(others, dtype=np.int64)
    own = np.array(box, dtype=np.int64)
    extents = np.minimum(ends[:, :, 1], own[:, 1]) - np.maximum(ends[:, :, 0], own[:, 0])
    return int(np.maximum(extents, 0).prod(axis=1).sum())


def _volume(box: Box) -> int:
    return math.prod(high - low for low, high in box)


def _said(box: Box) -> str:
    return " x ".join(f"[{low}, {high})" for low, high in box)
