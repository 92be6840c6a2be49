"""Relays: the moves of a relayout. Each relay moves a box of a tensor, which is strided in both
buffers.

The boxes of all parts of source and target cut each tensor into cells. The cells that lie in the
same parts form one *kind*. A device that already stores a kind copies it locally. Every other
device receives the kind once, even if several of its parts store it: with Q receivers and R
holders, a box is cut into R / gcd(Q, R) pieces, and the holder that has sent the fewest elements so
far sends the next piece.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from shardwright.ir.arrays import Integers
from shardwright.ir.holdings import Box, Mask, TensorClasses, box_of
from shardwright.ir.parts import BoundBuffer, BoundPart
from shardwright.ir.stored import Stored
from shardwright.ir.walks import FactorView, Nest, Ranges, View, crossed, walks_of

Shape: TypeAlias = tuple[int, ...]


class InBuffer(NamedTuple):
    """An element of a buffer: the index of the buffer, and the offset of the element in it."""

    buffer: int
    start: int


class Relay(NamedTuple):
    """Elements of a tensor that move from a buffer of the sender to buffers of the receiver, which
    may be the same device.

    `source`, `targets`: the first element in each buffer. `loops`: nested loops over the elements,
    outer to inner, with a step for each buffer. `box`: the ranges of each tensor dimension that
    contain the elements. Several relays may share a box and then each move a part of it.
    """

    tensor: str
    sender: int  # the device id of the sender
    receiver: int
    source: InBuffer
    targets: tuple[InBuffer, ...]
    loops: tuple[Nest, ...]
    box: tuple[Ranges, ...]

    @property
    def elements(self) -> int:
        """The number of elements that move."""
        return math.prod(loop.times for loop in self.loops)


def shapes_of(stored: Stored, buffer: BoundBuffer, padded: bool) -> list[Shape]:
    """Return the shape of a buffer at each mesh position. `padded`: return, for all positions, the
    smallest shape into which the shapes of all positions fit."""
    shapes = [buffer.shape(position) for position in range(stored.mesh.size)]
    if not padded:
        return shapes
    return [tuple(map(max, zip(*shapes, strict=True)))] * len(shapes)


@dataclass(frozen=True)
class StoredBox:
    """The elements of a tensor that a part contains on one device."""

    device: int  # a device id or, within a kind, a position or a class
    box: Box  # the patterns of the elements along each tensor dimension
    buffer: int  # the index of the buffer
    base: int  # the offset of the first element in the buffer
    views: tuple[View, ...]  # how the buffer stores each tensor dimension


def relays_of(source: Stored, target: Stored, *, padded: bool = False) -> tuple[Relay, ...]:
    """Return all moves between two stored layouts, including local copies. `padded`: whether each
    buffer is padded to one shape on all devices."""
    sides = [list(_parts(each, padded)) for each in (source, target)]
    sent = dict.fromkeys(source.mesh.device_ids, 0)
    found: list[Relay] = []
    for tensor, shape in source.tensors.items():
        held, wanted = ([part for name, part in side if name == tensor] for side in sides)
        kinds = sorted(cells_of(shape, held, wanted), key=lambda kind: len(kind.holders))
        for kind in kinds:
            found += _relays(tensor, kind, sent)
    return tuple(found)


def _parts(stored: Stored, padded: bool) -> Iterator[tuple[str, StoredBox]]:
    buffers = [(each, shapes_of(stored, each, padded)) for each in stored.bound.values()]
    for position, device in enumerate(stored.mesh.device_ids):
        for number, (buffer, shapes) in enumerate(buffers):
            for name, box, base, views in boxes_at(stored, buffer, shapes[position], position):
                yield name, StoredBox(device, box, number, base, views)


def boxes_at(
    stored: Stored, buffer: BoundBuffer, shape: Shape, position: int
) -> Iterator[tuple[str, Box, int, tuple[View, ...]]]:
    """Yield the boxes in a buffer at a mesh position: the name of the tensor, the box, the offset
    of its first element, and the views of its dimensions. `shape`: the shape of the buffer."""
    steps = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    for part, start in zip(buffer.parts, buffer.starts(position), strict=False):
        rank = len(stored.tensors[part.tensor])
        box = box_of(part, position, rank)
        if box is not None:
            base = start * steps[buffer.dim] if steps else 0
            yield part.tensor, box, base, _views(part, position, steps, rank)


def _views(part: BoundPart, position: int, steps: list[int], rank: int) -> tuple[View, ...]:
    """Return the view of each tensor dimension at a mesh position: the factors that the buffer
    stores, and their steps. `steps`: the step of each stored dimension."""
    found: list[list[FactorView]] = [[] for _ in range(rank)]
    for group, (low, _), step in zip(part.axes, part.box(position), steps, strict=True):
        for axis in reversed(group):
            if axis.size > 1:
                first = low if len(group) == 1 else 0
                found[axis.dim].append(FactorView(axis.weight, axis.size, first, step))
            step *= axis.size
    return tuple(tuple(sorted(each)) for each in found)


@dataclass(frozen=True)
class Cells:
    """Boxes of a tensor that the same parts contain."""

    boxes: list[tuple[Ranges, ...]]  # the ranges along each dimension
    holders: list[StoredBox]  # the source parts that contain the boxes
    takers: dict[int, list[StoredBox]]  # the target parts that contain the boxes, by device


def cells_of(shape: Shape, held: list[StoredBox], wanted: list[StoredBox]) -> Iterator[Cells]:
    """Yield groups of cells that target parts contain. The cells of a group lie in the same parts.

    `shape`: the shape of the tensor. `held`, `wanted`: its source and its target parts.
    """
    parts = [*held, *wanted]
    classes = TensorClasses.of(shape, dict.fromkeys(part.box for part in parts))
    masks = np.stack([classes.mask([part.box]) for part in parts])
    columns = masks.reshape(len(parts), -1)
    every, kind = np.unique(columns, axis=1, return_inverse=True)
    dims = classes.dims
    places = np.argsort(kind.reshape(-1), kind="stable")
    ends = np.cumsum(np.bincount(kind.reshape(-1), minlength=every.shape[1])).tolist()
    alone = [
        [tuple(dim.ranges(one)) for one in np.eye(dim.counts.size, dtype=bool)] for dim in dims
    ]
    for first, end, has in zip([0, *ends], ends, every.T, strict=False):
        has_parts = [parts[place] for place in np.flatnonzero(has)]
        count = int(has[: len(held)].sum())
        takers: dict[int, list[StoredBox]] = {}
        for part in has_parts[count:]:
            takers.setdefault(part.device, []).append(part)
        if takers:
            boxes = list(_boxes(classes, masks.shape[1:], places[first:end], alone))
            yield Cells(boxes, has_parts[:count], takers)


def _boxes(
    classes: TensorClasses, counts: Shape, places: Integers, alone: list[list[Ranges]]
) -> Iterator[tuple[Ranges, ...]]:
    """Yield disjoint boxes whose union is the given cells.

    `counts`: the number of classes along each dimension. `places`: the row-major numbers of the
    cells. `alone`: for each dimension, the ranges of each class.
    """
    if len(places) == 1:
        index = np.unravel_index(int(places[0]), counts) if counts else ()
        yield tuple(ranges[int(number)] for ranges, number in zip(alone, index, strict=True))
        return
    mask = np.zeros(math.prod(counts), dtype=np.bool_)
    mask[places] = True
    for box in _products(mask.reshape(counts)):
        yield tuple(
            tuple(dim.ranges(chosen)) for dim, chosen in zip(classes.dims, box, strict=True)
        )


def _products(mask: Mask) -> Iterator[tuple[Mask, ...]]:
    """Yield disjoint boxes that cover the true entries of a mask. A box is a mask along each
    dimension."""
    if mask.ndim == 0:
        yield ()
        return
    rows = mask.reshape(len(mask), -1)
    alike, number = np.unique(rows, axis=0, return_inverse=True)
    for place, row in enumerate(alike):
        if row.any():
            chosen: npt.NDArray[np.bool_] = number.reshape(-1) == place
            for rest in _products(row.reshape(mask.shape[1:])):
                yield (chosen, *rest)


def _relays(tensor: str, kind: Cells, sent: dict[int, int]) -> Iterator[Relay]:
    """Yield the relays of a kind. `sent`: the number of elements that each device sends in the
    relays so far; the relays of this kind are added to it."""
    holders: dict[int, StoredBox] = {}
    for part in kind.holders:
        holders.setdefault(part.device, part)
    keeping, lacking = (
        [device for device in kind.takers if (device in holders) == keeps]
        for keeps in (True, False)
    )
    for box in kind.boxes:
        for device in keeping:
            yield from strided(tensor, box, holders[device], kind.takers[device])
        pieces = len(holders) // math.gcd(len(holders), len(lacking)) if lacking else 1
        for piece in cut_box(box, pieces):
            elements = math.prod(map(count_of, piece))
            for device in lacking:
                sender = min(holders, key=lambda each: (sent[each], each))
                sent[sender] += elements
                yield from strided(tensor, piece, holders[sender], kind.takers[device])


def gathered_of(source: Stored, target: Stored) -> tuple[tuple[Relay, ...], tuple[Relay, ...]]:
    """Return two tuples of moves. The first moves each element from its home to all its places in
    the target. The second moves it from its home to its other places in the source. Reversed, the
    moves add the copies of each element at its home.

    The home of an element is one of its places in the source, on a device that also has the element
    in the target if there is one. If several devices can be the home, they share a box evenly.
    """
    held_by, wanted_by = (list(_parts(each, False)) for each in (source, target))
    homes = dict.fromkeys(source.mesh.device_ids, 0)  # elements that have their home on a device
    forth: list[Relay] = []
    beside: list[Relay] = []
    for tensor, shape in source.tensors.items():
        held, wanted = ([part for name, part in side if name == tensor]
                        for side in (held_by, wanted_by))  # fmt: skip
        for kind in cells_of(shape, held, wanted):
            known = [part for part in kind.holders if part.device in kind.takers] or kind.holders
            possible = {part.device: part for part in reversed(known)}
            for piece in (each for box in kind.boxes for each in cut_box(box, len(possible))):
                home = possible[min(possible, key=lambda device: (homes[device], device))]
                homes[home.device] += math.prod(map(count_of, piece))
                for parts in kind.takers.values():
                    forth += strided(tensor, piece, home, parts)
                for part in kind.holders:
                    beside += strided(tensor, piece, home, [part]) if part != home else ()
    return tuple(forth), tuple(beside)


def count_of(ranges: Ranges) -> int:
    return sum(high - low for low, high in ranges)


def cut_box(box: tuple[Ranges, ...], pieces: int) -> Iterator[tuple[Ranges, ...]]:
    """Yield the pieces of a box, cut along the first dimension with at least `pieces` elements, or
    else along the longest dimension into fewer pieces."""
    counts = list(map(count_of, box))
    if pieces == 1 or not counts:
        yield box
        return
    dim = next((d for d, count in enumerate(counts) if count >= pieces), counts.index(max(counts)))
    ends = np.linspace(0, counts[dim], min(pieces, counts[dim]) + 1).astype(int).tolist()
    for low, high in itertools.pairwise(ends):
        yield (*box[:dim], _among(box[dim], low, high), *box[dim + 1 :])


def _among(ranges: Ranges, first: int, last: int) -> Ranges:
    """Return the elements with indices `first` to below `last` in the given ranges, as ranges."""
    found, before = [], 0
    for low, high in ranges:
        begin, end = max(first - before, 0), min(last - before, high - low)
        if begin < end:
            found.append((low + begin, low + end))
        before += high - low
    return tuple(found)


def strided(
    tensor: str, box: tuple[Ranges, ...], source: StoredBox, targets: list[StoredBox]
) -> Iterator[Relay]:
    """Yield the relays that move a box from a source part to target parts on one device."""
    ends = (source, *targets)
    along = [
        walks_of(ranges, tuple(end.views[dim] for end in ends)) for dim, ranges in enumerate(box)
    ]
    for walk in crossed(along, tuple(end.base for end in ends)):
        first, *others = (
            InBuffer(end.buffer, start) for end, start in zip(ends, walk.starts, strict=True)
        )
        device = targets[0].device
        yield Relay(tensor, source.device, device, first, tuple(others), walk.loops, box)
