"""Find the simplest layout that puts every element of a buffer at the right position on every rank.

Layouts are tried in this order, and the first correct one wins:

1. each tensor once: equal chunks, balanced, nested, padded cuts
2. one contiguous cut through the stack of the tensors
3. each tensor once, by any cut that `fit_dim.py` knows
4. the same with factors: other orders of dimensions, strides, and tensors that alternate in turns
   of equal length, for which the buffer is split into one more dimension
5. a tensor in several parts, split where its elements on any rank are not consecutive
6. a part for each range of each rank
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from shardwright.codegen.learn.fit_dim import ANY, PLAIN, DimFit, Range
from shardwright.codegen.learn.fit_part import EMPTY, PartFit, Seen, Slot
from shardwright.codegen.learn.held import PADDING, SCATTERED, UNKNOWN, HeldBlock
from shardwright.codegen.learn.probe import PADDED
from shardwright.codegen.learn.sampled import AnyHeld, SampledBuffer, blocks_of
from shardwright.ir.errors import InputError
from shardwright.ir.mesh import Mesh
from shardwright.ir.parts import BoundBuffer, BufferLayout, Stack, bind

MOST_PARTS = 4096
_ODD = (PADDING, UNKNOWN, SCATTERED)


def fit_buffer(
    held: Sequence[AnyHeld], shapes: Mapping[str, tuple[int, ...]], mesh: Mesh
) -> BufferLayout | None:
    """Return the simplest layout of a buffer, given its contents at each mesh position; None if no
    layout fits."""
    ranks = {len(each.shape) for each in held if each.size} or {len(held[0].shape)}
    if len(ranks) > 1 or not all(each.is_moved for each in held):
        return None
    if not any(each.has_elements for each in held):
        return None
    along = sorted(
        (_View(tuple(held), shapes, mesh, dim) for dim in range(max(1, *ranks))),
        key=lambda view: sum(map(len, view.blocks)),
    )
    for view in along:
        for layout in view.layouts():
            if holds(layout, held, shapes, mesh):
                return layout
    return None


def holds(
    layout: BufferLayout,
    held: Sequence[AnyHeld],
    shapes: Mapping[str, tuple[int, ...]],
    mesh: Mesh,
) -> bool:
    """Return whether a layout puts every element in its actual place at every mesh position."""
    try:
        bound = bind(layout, shapes, mesh)
    except InputError:
        return False
    numbers = {name: number for number, name in enumerate(shapes)}
    return all(_holds_one(bound, position, each, numbers) for position, each in enumerate(held))


def _holds_one(
    bound: BoundBuffer, position: int, held: AnyHeld, numbers: Mapping[str, int]
) -> bool:
    if isinstance(held, SampledBuffer):
        return held.holds(bound, position, numbers)
    shape = bound.shape(position)
    if math.prod(shape) != held.size:
        return False
    seen = held.reshaped(shape)
    covered = np.zeros(shape, dtype=np.bool_)
    for part, start in zip(bound.parts, bound.starts(position), strict=False):
        box = part.box(position)
        if any(low >= high for low, high in box):
            continue
        place = [slice(0, high - low) for low, high in box]
        if place:
            width = box[bound.dim][1] - box[bound.dim][0]
            place[bound.dim] = slice(start, start + width)
        there = tuple(place)
        covered[there] = True
        if (seen.tensors[there] != numbers[part.tensor]).any():
            return False
        index = seen.index[there]
        for dim, wanted in enumerate(part.indices(box) if box else ()):
            if (index[..., dim] != wanted).any():
                return False
    return not (seen.tensors[~covered] != PADDED).any()


class _View(Seen):
    @cached_property
    def blocks(self) -> list[list[HeldBlock]]:
        return [[block for block in blocks if block.tensor != PADDING] for blocks in self._all]

    @cached_property
    def _all(self) -> list[list[HeldBlock]]:
        return [blocks_of(each, self.shapes, self.dim) if each.size else [] for each in self.held]

    def layouts(self) -> Iterator[BufferLayout]:
        """Yield layouts that may fit, simplest first."""
        if self._is_odd:
            return
        slots = self._once()
        if slots is not None:
            yield from self._stacks(slots, PLAIN)
            yield from self._through(slots)
            yield from self._stacks(slots, ANY)
            yield from self._stacks(slots, ANY, factored=True)
        turned = self._in_turns()
        if turned is not None:
            yield from turned._alternating()
        for split in (self._pieces, self._cut_alike, self._each):
            slots = split()
            if slots is not None:
                yield from self._stacks(slots, ANY)
                yield from self._stacks(slots, ANY, factored=True)

    @property
    def _is_odd(self) -> bool:
        return any(block.tensor in _ODD for blocks in self.blocks for block in blocks)

    def _alternating(self) -> Iterator[BufferLayout]:
        slots = None if self._is_odd else self._once()
        if slots is not None:
            yield from self._stacks(slots, ANY, factored=True)

    def _once(self) -> list[Slot] | None:
        """Return a slot for each tensor, in the order common to all positions; None if there is
        no such order, or if a tensor has several blocks at a position."""
        order: list[str] = []
        after: dict[str, set[str]] = {}
        for blocks in self.blocks:
            names = [block.tensor for block in blocks]
            if len({*names}) < len(names):
                return None
            order += [name for name in names if name not in order]
            for first, second in itertools.combinations(names, 2):
                after.setdefault(first, set()).add(second)
        ordered: list[str] = []
        while len(ordered) < len(order):
            left = [name for name in order if name not in ordered]
            later = {second for name in left for second in after.get(name, ())}
            free = [name for name in left if name not in later]
            if not free:
                return None
            ordered.append(free[0])
        order = ordered
        found: list[Slot] = [[None] * len(self.held) for _ in order]
        for position, blocks in enumerate(self.blocks):
            for block in blocks:
                found[order.index(block.tensor)][position] = block
        return found

    def _stacks(
        self, slots: list[Slot], most: int, factored: bool = False
    ) -> Iterator[BufferLayout]:
        for padded in self._paddings(slots):
            found = [
                PartFit(self, slot, pads).part(most, factored)
                for slot, pads in zip(slots, padded, strict=True)
            ]
            parts = [each for each in found if each is not None]
            if parts and len(parts) == len(found):
                if len(parts) == 1:
                    yield parts[0][0]
                yield Stack(parts[0][1], tuple(part for part, _ in parts))

    def _paddings(self, slots: list[Slot]) -> list[list[int | None]]:
        """Return the padded widths to try, one list per choice: for each slot its width at all
        positions, or None for no padding."""
        none: list[int | None] = [None] * len(slots)
        if not any(block.tensor == PADDING for blocks in self._all for block in blocks):
            return [none]
        widths = [max(b.width for b in slot if b is not None) for slot in slots]
        after = list(none)
        for number, slot in enumerate(slots):
            for position, block in enumerate(slot):
                if block is None:
                    continue
                pads = next((b for b in self._all[position] if b.start == block.stop), None)
                if pads is not None and pads.tensor == PADDING:
                    after[number] = max(after[number] or 0, widths[number], pads.stop - block.start)
        if len(slots) == 1:
            widths = [max(each.shape[self.dim] for each in self.held)]
        return [none, after, list(widths)]

    def _through(self, slots: list[Slot]) -> Iterator[BufferLayout]:
        """Yield the layouts that stack all tensors, then cut the stack into one contiguous range
        per position."""
        if len(slots) < 2:
            return
        names = [next(b.tensor for b in slot if b is not None) for slot in slots]
        rank = len(self.held[0].shape)
        if any(len(self.shapes[name]) != rank for name in names):
            return
        extents = [self.shapes[name][self.dim] for name in names]
        starts = dict(zip(names, itertools.accumulate(extents, initial=0), strict=False))
        ranges: list[Range] = []
        for blocks in self.blocks:
            pieces = [
                (starts[b.tensor] + b.base[self.dim], starts[b.tensor] + b.base[self.dim] + b.width)
                for b in blocks
            ]
            if any(a[1] != b[0] for a, b in itertools.pairwise(pieces)):
                return
            ranges.append((pieces[0][0], pieces[-1][1]) if pieces else EMPTY)
        parts = [PartFit(self, slot, None).built(PLAIN, False, None, whole=True) for slot in slots]
        widths = {each.shape[self.dim] for each in self.held}
        for pads in dict.fromkeys([None, max(widths)]):
            fit = DimFit(self.mesh, sum(extents), tuple(ranges), pads, self.extents)
            for cut in fit.cuts():
                if cut.window is None and all(part is not None for part in parts):
                    whole = tuple(part[0] for part in parts if part is not None)
                    yield Stack(self.dim, whole, cut)

    def _in_turns(self) -> _View | None:
        """Return the buffer with an extra dimension for turns of tensors; None if tensors do not
        alternate."""
        runs = [[(b.tensor, b.width) for b in blocks] for blocks in self._all]
        longest = max(runs, key=len)
        for many in range(1, len(longest) // 2 + 1):
            turn = longest[:many]
            if all(_repeats(each, turn) for each in runs):
                break
        else:
            return None
        length = sum(width for _, width in turn)
        found = tuple(each.split(self.dim, length) for each in self.held)
        return _View(found, self.shapes, self.mesh, self.dim + 1)

    def _pieces(self) -> list[Slot] | None:
        """Return a slot for each piece of consecutive elements; None if the order of tensors
        differs between positions."""
        split = [
            [p for block in blocks for p in _unbroken(block, self.dim)] for blocks in self.blocks
        ]
        order = {tuple(p.tensor for p in pieces) for pieces in split if pieces}
        if len(order) > 1:
            return None
        return [
            [pieces[number] if pieces else None for pieces in split]
            for number in range(len(order.pop()))
        ]

    def _cut_alike(self) -> list[Slot] | None:
        """Return slots of blocks that are split wherever elements at any position are not
        consecutive; None if shapes differ or there are too many slots."""
        if len({each.shape for each in self.held if each.size}) > 1:
            return None
        split = [
            [p for block in blocks for p in _unbroken(block, self.dim)] for blocks in self.blocks
        ]
        ends = sorted({end for pieces in split for p in pieces for end in (p.start, p.stop)})
        if len(ends) > MOST_PARTS:
            return None
        found: dict[tuple[int, str], Slot] = {}
        for position, pieces in enumerate(split):
            for piece in pieces:
                inner = [end for end in ends if piece.start <= end <= piece.stop]
                for low, high in itertools.pairwise(inner):
                    slot = found.setdefault((low, piece.tensor), [None] * len(split))
                    slot[position] = piece.sliced(self.dim, low, high)
        return [found[key] for key in sorted(found)]

    def _each(self) -> list[Slot] | None:
        """Return a separate slot for each range at each position; None if these are too many."""
        found: list[Slot] = []
        for position, blocks in enumerate(self.blocks):
            for piece in (p for block in blocks for p in _unbroken(block, self.dim)):
                found.append([None] * len(self.held))
                found[-1][position] = piece
        return found if len(found) <= MOST_PARTS else None


def _repeats(runs: list[tuple[str, int]], turn: list[tuple[str, int]]) -> bool:
    return len(runs) % len(turn) == 0 and runs == turn * (len(runs) // len(turn))


def _unbroken(block: HeldBlock, dim: int) -> Iterator[HeldBlock]:
    if not block.adds:
        yield block
        return
    unit = np.eye(len(block.base), dtype=np.int64)[dim] if dim < len(block.base) else 0
    jumps = np.flatnonzero((np.diff(block.adds[dim], axis=0) != unit).any(axis=1)) + 1
    for low, high in itertools.pairwise([0, *jumps.tolist(), block.width]):
        yield block.sliced(dim, block.start + low, block.start + high)
