"""Describe the contents of a device's buffer as blocks, from a layout or from the output of a
loader.

A block is a range of the buffer along one dimension whose elements belong to one tensor. The
logical index of an element is a base plus one term for each dimension of the buffer, which depends
on the element's position there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shardwright.codegen.learn.probe import COMPUTED, PADDED, HeldBuffer
from shardwright.ir.arrays import Integers
from shardwright.ir.parts import Shapes
from shardwright.ir.stored import Stored

PADDING = "padding"
UNKNOWN = "computed values"
SCATTERED = "elements in no order of rows and columns"


@dataclass(frozen=True)
class HeldBlock:
    """A block of elements of one tensor, or a range without known elements if `tensor` is
    `PADDING`, `UNKNOWN` or `SCATTERED`.

    `adds`: for each dimension of the buffer int64 [extent, rank], zeros in the first row. A stored
    value is `element * times + plus`.
    """

    start: int
    tensor: str
    base: tuple[int, ...] = ()
    adds: tuple[Integers, ...] = ()
    width: int = 0
    times: float = 1.0
    plus: float = 0.0

    @property
    def stop(self) -> int:
        """The end of the block along its dimension."""
        return self.start + self.width

    @property
    def way(self) -> tuple[str, float, float]:
        """The tensor, and the factor and offset of its stored values."""
        return self.tensor, self.times, self.plus

    def sliced(self, dim: int, low: int, high: int) -> HeldBlock:
        """Return the part of a block between positions `low` and `high` of the buffer."""
        if not self.adds:
            return replace(self, start=low, width=high - low)
        adds = list(self.adds)
        taken = adds[dim][low - self.start : high - self.start]
        adds[dim] = taken - taken[0]
        base = tuple(int(b) for b in np.asarray(self.base) + taken[0])
        return replace(self, start=low, base=base, adds=tuple(adds), width=high - low)


def of_layout(stored: Stored, buffer: str, position: int, along: int = 0) -> list[HeldBlock]:
    """Return the blocks of a buffer at a mesh position, along the dimension in which its parts are
    stacked. `along`: the dimension for a buffer of a single part."""
    bound = stored.bound[buffer]
    if len(bound.parts) == 1 and bound.parts[0].cuts:
        bound = replace(bound, dim=along)
    found = []
    for part, start in zip(bound.parts, bound.starts(position), strict=False):
        box = part.box(position)
        if not box:
            return [HeldBlock(0, part.tensor, (), (), 1)]
        if any(low >= high for low, high in box):
            continue
        rank = len(stored.tensors[part.tensor])
        base, adds = np.zeros(rank, dtype=np.int64), []
        for dim, (low, high) in enumerate(box):
            added = np.zeros((high - low, rank), dtype=np.int64)
            for logical, values in part.along(dim, low, high).items():
                added[:, logical] = values
            base += added[0]
            adds.append(added - added[0])
        width = box[bound.dim][1] - box[bound.dim][0]
        found.append(HeldBlock(start, part.tensor, tuple(map(int, base)), tuple(adds), width))
    shape = bound.shape(position)
    return list(_padded(found, shape[bound.dim] if shape else 1))


def _padded(blocks: list[HeldBlock], extent: int) -> Iterator[HeldBlock]:
    end = 0
    for block in blocks:
        if block.start > end:
            yield HeldBlock(end, PADDING, width=block.start - end)
        yield block
        end = block.stop
    if end < extent:
        yield HeldBlock(end, PADDING, width=extent - end)


def of_held(held: HeldBuffer, shapes: Shapes, dim: int) -> list[HeldBlock]:
    """Return the blocks of a buffer that a loader returned, for tensors of these shapes."""
    if held.tensors.ndim == 0:
        return [_row(held.reshaped((1,)), shapes, 0)]
    found: list[HeldBlock] = []
    for start in range(held.shape[dim]):
        row = _row(held.row(start, dim), shapes, start)
        last = found[-1] if found else None
        if last is not None and _goes_on(last, row, dim):
            found[-1] = _joined(last, row, dim)
        else:
            found.append(row)
    return found


def _row(row: HeldBuffer, shapes: Shapes, start: int) -> HeldBlock:
    filled = row.tensors != PADDED
    if not filled.any():
        return HeldBlock(start, PADDING, width=1)
    # Leave out the padding at the ends.
    ends = tuple(slice(0, int(places.max()) + 1) for places in np.nonzero(filled))
    tensors, index = row.tensors[ends], row.index[ends]
    ways = [np.unique(each[ends]) for each in (row.tensors, row.times, row.plus)]
    if (tensors == COMPUTED).any() or any(each.size != 1 for each in ways[1:]):
        return HeldBlock(start, UNKNOWN, width=1)
    if ways[0].size > 1:
        return HeldBlock(start, SCATTERED, width=1)
    name, shape = [*shapes.items()][int(ways[0][0])]
    said = float(ways[1][0]), float(ways[2][0])
    if not shape:
        return HeldBlock(start, name, (), (), 1, *said)
    return _separated(name, index[..., : len(shape)], start, *said)


def _separated(name: str, index: Integers, start: int, times: float, plus: float) -> HeldBlock:
    """Return a row as a block if the logical index of each element is a base plus one term per
    dimension, else as a scattered block."""
    dims = index.ndim - 1
    origin = index[(0,) * dims]
    adds = []
    total = np.broadcast_to(origin, index.shape)
    for dim in range(dims):
        line = index[tuple(slice(None) if dim == each else 0 for each in range(dims))] - origin
        sides = [1] * dims
        sides[dim] = -1
        total = total + line.reshape(*sides, index.shape[-1])
        adds.append(line)
    if not np.array_equal(total, index):
        return HeldBlock(start, SCATTERED, width=1)
    return HeldBlock(start, name, tuple(map(int, origin)), tuple(adds), 1, times, plus)


def _goes_on(last: HeldBlock, row: HeldBlock, dim: int) -> bool:
    if last.way != row.way or len(last.adds) != len(row.adds):
        return False
    sides = (each for each in enumerate(zip(last.adds, row.adds, strict=True)) if each[0] != dim)
    return all(np.array_equal(a, b) for _, (a, b) in sides)


def _joined(last: HeldBlock, row: HeldBlock, dim: int) -> HeldBlock:
    if not last.adds:
        return replace(last, width=last.width + 1)
    adds = list(last.adds)
    step = np.asarray(row.base) - np.asarray(last.base)
    adds[dim] = np.concatenate([adds[dim], step[None]])
    return replace(last, adds=tuple(adds), width=last.width + 1)


def best_dim(held: Sequence[HeldBuffer], shapes: Shapes) -> int:
    """Return the dimension along which the buffers have the fewest mixed blocks, then the fewest
    blocks. A mixed block has elements of several tensors, or padding next to elements."""
    rank = max(len(each.shape) for each in held)
    if rank < 2:
        return 0
    every = [each for each in held if len(each.shape) == rank]

    def cost(dim: int) -> tuple[int, int]:
        blocks = [(block, each) for each in every for block in of_held(each, shapes, dim)]
        return sum(_is_odd(block, dim, each.shape) for block, each in blocks), len(blocks)

    return min(range(rank), key=cost)


def _is_odd(block: HeldBlock, dim: int, shape: tuple[int, ...]) -> bool:
    beside = (len(add) < shape[each] for each, add in enumerate(block.adds) if each != dim)
    return block.tensor == SCATTERED or any(beside)


def called(block: HeldBlock, dims: list[int] | None, shapes: Shapes) -> str:
    """Return a description of a block's contents. `dims`: the dimensions to name, by default the
    dimensions that are not whole."""
    changed = f" times {block.times:g}" * (block.times != 1)
    changed += f" plus {block.plus:g}" * (block.plus != 0)
    if not block.adds:
        return block.tensor + changed
    sets, shape = indices_of(block), shapes[block.tensor]
    chosen = dims if dims is not None else _cut_dims(sets, shape)
    said = (f"{named(d, len(shape))} {listed(sets[d])}" for d in chosen)
    return f"{block.tensor} {', '.join(said)}{changed}"


def _cut_dims(sets: list[Integers], shape: tuple[int, ...]) -> list[int]:
    """Return the dimensions along which the block does not have all indices, or the first dimension
    if there are none."""
    cut = [d for d, extent in enumerate(shape) if sets[d].size != extent]
    return cut or [0]


def indices_of(block: HeldBlock) -> list[Integers]:
    """Return, for each logical dimension, the sorted indices of a block's elements."""
    return [np.unique(order_of(block, dim)) for dim in range(len(block.base))]


def order_of(block: HeldBlock, dim: int) -> Integers:
    """Return the indices of a block along a logical dimension, in stored order."""
    order = np.array([block.base[dim]], dtype=np.int64)
    for add in block.adds:
        if add[:, dim].any():
            order = np.add.outer(order, add[:, dim]).reshape(-1)
    return order


def named(dim: int, rank: int) -> str:
    """Return the noun for indices along a dimension, for example "rows"."""
    if rank == 1:
        return "elements"
    return ("rows", "columns")[dim] if dim < 2 else f"indices of dimension {dim}"


def listed(indices: Integers) -> str:
    """Describe indices: `4 to 8`, `0 to 30 by 2`, or the first few of an irregular list."""
    steps = {*np.diff(indices).tolist()}
    first, last = int(indices[0]), int(indices[-1])
    if not steps or steps == {1}:
        return f"{first} to {last + 1}"
    if len(steps) == 1 and min(steps) > 0:
        return f"{first} to {last + 1} by {steps.pop()}"
    return ", ".join(map(str, indices[:8].tolist())) + ", …" * (indices.size > 8)
