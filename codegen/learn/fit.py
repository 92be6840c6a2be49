"""The simplest layout of a buffer that gives every rank what it holds, place by place.

Tried in this order; the first that holds on every element of every rank wins:

1. each tensor once: equal chunks, balanced, nested, padded cuts
2. one contiguous cut through the stack of the tensors
3. each tensor once, by any cut that `fit_dim.py` knows
4. the same with factors: other orders of dimensions, strides, and tensors that alternate in turns
   of equal length, for which the buffer is seen with one more dimension
5. a tensor in several parts, where its elements jump, or where those of another rank do
6. a part for each range of each rank
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shardwright.codegen.learn.fit_dim import ANY, PLAIN, DimFit, Range
from shardwright.codegen.learn.held import PADDING, SCATTERED, UNKNOWN, HeldBlock, of_held
from shardwright.codegen.learn.probe import PADDED, HeldBuffer
from shardwright.ir.arrays import Integers
from shardwright.ir.dim_cuts import DimCut
from shardwright.ir.errors import InputError
from shardwright.ir.factors import Factors
from shardwright.ir.mesh import Mesh
from shardwright.ir.parts import BoundBuffer, BufferLayout, Stack, TensorPart, bind

EMPTY = (0, 0)
MOST_PARTS = 4096
_ODD = (PADDING, UNKNOWN, SCATTERED)

Slot = list[HeldBlock | None]
"""What each mesh position has of one part; None: nothing."""


def fit_buffer(
    held: Sequence[HeldBuffer], shapes: Mapping[str, tuple[int, ...]], mesh: Mesh
) -> BufferLayout | None:
    """Return the layout of a buffer from what each mesh position holds; None where no layout has
    it."""
    ranks = {len(each.shape) for each in held if each.tensors.size} or {len(held[0].shape)}
    if len(ranks) > 1 or not all(each.is_moved for each in held):
        return None
    if not any((each.tensors >= 0).any() for each in held):
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
    held: Sequence[HeldBuffer],
    shapes: Mapping[str, tuple[int, ...]],
    mesh: Mesh,
) -> bool:
    """Return whether a layout has every element of every position in its place."""
    try:
        bound = bind(layout, shapes, mesh)
    except InputError:
        return False
    numbers = {name: number for number, name in enumerate(shapes)}
    return all(_holds_one(bound, position, each, numbers) for position, each in enumerate(held))


def _holds_one(
    bound: BoundBuffer, position: int, held: HeldBuffer, numbers: Mapping[str, int]
) -> bool:
    shape = bound.shape(position)
    if math.prod(shape) != held.tensors.size:
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


@dataclass(frozen=True, eq=False)
class _View:
    """A buffer on all positions, in blocks along a dimension."""

    held: tuple[HeldBuffer, ...]
    shapes: Mapping[str, tuple[int, ...]]
    mesh: Mesh
    dim: int

    @cached_property
    def blocks(self) -> list[list[HeldBlock]]:
        """Of each position its blocks, padding left out."""
        return [[block for block in blocks if block.tensor != PADDING] for blocks in self._all]

    @cached_property
    def _all(self) -> list[list[HeldBlock]]:
        return [
            of_held(each, self.shapes, self.dim) if each.tensors.size else [] for each in self.held
        ]

    def layouts(self) -> Iterator[BufferLayout]:
        """Yield layouts that may hold, simplest first."""
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
        """Return a slot for each tensor, in the order of all positions; None if there is none."""
        order: list[str] = []
        after: dict[str, set[str]] = {}
        for blocks in self.blocks:
            names = [block.tensor for block in blocks]
            if len({*names}) < len(names):
                return None
            order += [name for name in names if name not in order]
            for first, second in itertools.combinations(names, 2):
                after.setdefault(first, set()).add(second)
        for first in order:
            if any(first in after.get(second, ()) for second in after.get(first, ())):
                return None
        order.sort(key=lambda name: -len(after.get(name, ())))
        found: list[Slot] = [[None] * len(self.held) for _ in order]
        for position, blocks in enumerate(self.blocks):
            for block in blocks:
                found[order.index(block.tensor)][position] = block
        return found

    def _stacks(
        self, slots: list[Slot], most: int, factored: bool = False
    ) -> Iterator[BufferLayout]:
        """Yield stacks of parts that have what the slots have."""
        for padded in self._paddings(slots):
            found = [
                _Slot(self, slot, pads).part(most, factored)
                for slot, pads in zip(slots, padded, strict=True)
            ]
            parts = [each for each in found if each is not None]
            if parts and len(parts) == len(found):
                if len(parts) == 1:
                    yield parts[0][0]
                yield Stack(parts[0][1], tuple(part for part, _ in parts))

    def _paddings(self, slots: list[Slot]) -> list[list[int | None]]:
        """Return what each slot may store with its padding: none, one width for all positions."""
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
        """Yield a contiguous cut through the whole tensors."""
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
        parts = [_Slot(self, slot, None).built(PLAIN, False, None, whole=True) for slot in slots]
        widths = {each.shape[self.dim] for each in self.held}
        for pads in dict.fromkeys([None, max(widths)]):
            fit = DimFit(self.mesh, sum(extents), tuple(ranges), pads, self.extents)
            for cut in fit.cuts():
                if cut.window is None and all(part is not None for part in parts):
                    whole = tuple(part[0] for part in parts if part is not None)
                    yield Stack(self.dim, whole, cut)

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents of all dimensions of all tensors."""
        return tuple(dict.fromkeys(e for shape in self.shapes.values() for e in shape))

    def _in_turns(self) -> _View | None:
        """Return the buffer with turns of tensors as a dimension more; None if they do not
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
        found = []
        for each in self.held:
            shape = list(each.shape)
            shape[self.dim : self.dim + 1] = [shape[self.dim] // length, length]
            found.append(each.reshaped(shape))
        return _View(tuple(found), self.shapes, self.mesh, self.dim + 1)

    def _pieces(self) -> list[Slot] | None:
        """Return slots in which elements do not jump, where all positions have alike ones."""
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
        """Return slots between all places at which the elements of any position jump."""
        if len({each.shape for each in self.held if each.tensors.size}) > 1:
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
        """Return a slot for each range of each position."""
        found: list[Slot] = []
        for position, blocks in enumerate(self.blocks):
            for piece in (p for block in blocks for p in _unbroken(block, self.dim)):
                found.append([None] * len(self.held))
                found[-1][position] = piece
        return found if len(found) <= MOST_PARTS else None


def _repeats(runs: list[tuple[str, int]], turn: list[tuple[str, int]]) -> bool:
    return len(runs) % len(turn) == 0 and runs == turn * (len(runs) // len(turn))


def _unbroken(block: HeldBlock, dim: int) -> Iterator[HeldBlock]:
    """Yield a block in pieces whose elements follow one another along the dimension."""
    if not block.adds:
        yield block
        return
    unit = np.eye(len(block.base), dtype=np.int64)[dim] if dim < len(block.base) else 0
    jumps = np.flatnonzero((np.diff(block.adds[dim], axis=0) != unit).any(axis=1)) + 1
    for low, high in itertools.pairwise([0, *jumps.tolist(), block.width]):
        yield block.sliced(dim, block.start + low, block.start + high)


def _box(block: HeldBlock, dim: int) -> list[tuple[int, int]] | None:
    """Return the range along each dimension; None for elements in another order."""
    if len(block.adds) != len(block.base):
        return None
    found = []
    for each, (base, add) in enumerate(zip(block.base, block.adds, strict=True)):
        if loops(add) not in ([], [(each, 1, len(add))]):
            return None
        found.append((base, base + len(add)))
    return found


Entry = tuple[int, int, int]
"""A logical dimension, how far apart its elements are, and how many."""


def loops(add: Integers) -> list[Entry] | None:
    """Return the loops, major to minor, by which places along a dimension run through the logical
    index; None if they run otherwise."""
    found: list[Entry] = []
    while len(add) > 1:
        step = add[1] - add[0]
        (moved,) = np.nonzero(step) if np.count_nonzero(step) == 1 else (None,)
        if moved is None or step[moved[0]] < 0:
            return None
        same = (np.diff(add, axis=0) == step).all(axis=1)
        size = len(add) if same.all() else int(np.argmin(same)) + 1
        if len(add) % size:
            return None
        turns = add.reshape(len(add) // size, size, -1)
        if not np.array_equal(turns - turns[:, :1], np.broadcast_to(add[:size], turns.shape)):
            return None
        found.insert(0, (int(moved[0]), int(step[moved[0]]), size))
        add = add[::size]
    return found


@dataclass(frozen=True, eq=False)
class _Slot:
    """One part to fit; `pads`: its extent along the stack with padding, on every position."""

    view: _View
    slot: Slot
    pads: int | None

    @cached_property
    def _blocks(self) -> list[HeldBlock]:
        return [block for block in self.slot if block is not None]

    @property
    def _tensor(self) -> str:
        return self._blocks[0].tensor

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.view.shapes[self._tensor]

    def part(self, most: int, factored: bool) -> tuple[TensorPart, int] | None:
        """Return the simplest part that no other position has, and its dimension of the stack; None
        if there is none."""
        dims = len(self._blocks[0].adds) + 2 * factored
        for empty in (None, *range(dims)) if None in self.slot else (None,):
            found = self.built(most, factored, empty)
            if found is None:
                continue
            try:
                bound = found[0].bind(self._shape, self.view.mesh)
            except InputError:
                continue
            absent = (place for place, block in enumerate(self.slot) if block is None)
            if all(any(low >= high for low, high in bound.box(place)) for place in absent):
                return found
        return None

    def built(
        self, most: int, factored: bool, empty: int | None, whole: bool = False
    ) -> tuple[TensorPart, int] | None:
        """Return the simplest part of what positions have.

        `empty`: the stored dimension of which other positions have no element. `whole`: leave the
        dimension of the stack whole.
        """
        if not self._shape:
            return TensorPart(self._tensor), 0
        order = self._order() if factored else None
        if factored:
            if order is None:
                return None
            return self._with_factors(order, most, empty)
        boxes = [None if b is None else _box(b, self.view.dim) for b in self.slot]
        known = sum(box is not None for box in boxes) == len(self._blocks)
        if not known and not whole:
            return None
        dims = []
        for dim, extent in enumerate(self._shape):
            if whole and dim == self.view.dim:
                dims.append(DimCut())
                continue
            ranges = [None if box is None else box[dim] for box in boxes]
            ranges = [(EMPTY if dim == empty else None) if e is None else e for e in ranges]
            cut = self._cut(dim, extent, ranges, most)
            if cut is None:
                return None
            dims.append(cut)
        return TensorPart(self._tensor, tuple(dims)), self.view.dim

    def _cut(self, dim: int | None, extent: int, ranges: list[Range], most: int) -> DimCut | None:
        """Return the simplest cut of a stored dimension; `dim`: of the buffer, if it is one."""
        pads = None
        if dim == self.view.dim:
            pads = self.pads
        elif dim is not None:
            full = [held.shape[dim] if held.tensors.size else 0 for held in self.view.held]
            pairs = zip(self.slot, full, strict=True)
            if any(b is not None and len(b.adds[dim]) < extent for b, extent in pairs):
                pads = max(full)
        fit = DimFit(self.view.mesh, extent, tuple(ranges), pads, self.view.extents)
        return next(fit.cuts(most), None)

    def _order(self) -> list[list[Entry]] | None:
        """Return by which loops each dimension of the buffer runs through the tensor, with the
        sizes that most positions have; None if positions run in several ways."""
        found: list[list[Entry]] = [[] for _ in self._blocks[0].adds]
        for block in self._blocks:
            for dim, add in enumerate(block.adds):
                nest = loops(add)
                if nest is None:
                    return None
                if len(nest) > len(found[dim]):
                    found[dim] = nest
        used = {logical for nest in found for logical, _, _ in nest}
        free = [dim for dim in range(len(self._shape)) if dim not in used]
        for dim, nest in enumerate(found):
            if not nest and dim in free and len(found) == len(self._shape):
                free.remove(dim)
                nest.append((dim, 1, 1))
        for place, nest in enumerate(found):
            if not nest:  # a dimension of extent 1: one of the tensor's that is left, or a new one
                nest.append((free.pop(0), 1, 1) if free else (0, -place, 1))
        return found

    def _with_factors(
        self, order: list[list[Entry]], most: int, empty: int | None
    ) -> tuple[TensorPart, int] | None:
        """Return the part that runs through the tensor by these loops."""
        sizes = self._factor_sizes(order)
        if sizes is None:
            return None
        groups: list[tuple[int | None, list[tuple[int, int]]]] = []
        stored = [(logical, weight) for nest in order for logical, weight, _ in nest]
        for logical, by_weight in enumerate(sizes):
            groups += [(None, [(logical, w)]) for w in by_weight if (logical, w) not in stored]
        stack = len(groups)
        for dim, nest in enumerate(order):
            keys = [(logical, weight) for logical, weight, _ in nest]
            if dim == self.view.dim:
                stack = len(groups)
            whole = all(size == sizes[logical][weight] for logical, weight, size in nest)
            if len(keys) > 1 and not whole:
                groups += [(None, [key]) for key in keys]
            else:
                groups.append((dim, keys))
        dims = []
        for number, (place, keys) in enumerate(groups):
            cut = self._cut_of(place, keys, sizes, most, EMPTY if number == empty else None)
            if cut is None:
                return None
            dims.append(cut)
        factors = _written(sizes, [keys for _, keys in groups])
        return TensorPart(self._tensor, tuple(dims), factors), stack

    def _factor_sizes(self, order: list[list[Entry]]) -> list[dict[int, int]] | None:
        """Return of each logical dimension the factors by weight, major to minor; those of weight 0
        or less have size 1."""
        found = []
        for logical, extent in enumerate(self._shape):
            used = {w for nest in order for each, w, _ in nest if each == logical}
            ends = [extent, *sorted({1, *(w for w in used if w > 0)}, reverse=True)]
            if any(high % low for high, low in itertools.pairwise(ends)):
                return None
            sizes = {w: high // w for high, w in itertools.pairwise(ends)}
            found.append({**sizes, **{w: 1 for w in sorted(used) if w <= 0}})
        return found

    def _cut_of(
        self,
        dim: int | None,
        keys: list[tuple[int, int]],
        sizes: list[dict[int, int]],
        most: int,
        absent: Range,
    ) -> DimCut | None:
        """Return the cut of a stored dimension of some factors."""
        if len(keys) != 1:
            return DimCut()
        ((logical, weight),) = keys
        size = sizes[logical][weight]
        ranges: list[Range] = []
        for block in self.slot:
            if block is None:
                ranges.append(absent)
                continue
            counts = [
                many
                for add in block.adds
                for each, w, many in loops(add) or ()
                if (each, w) == (logical, weight)
            ]
            low = block.base[logical] // weight % size if weight > 0 else 0
            ranges.append((low, low + (counts[0] if counts else 1)))
        return self._cut(dim, size, ranges, most)


def _written(sizes: list[dict[int, int]], groups: list[list[tuple[int, int]]]) -> Factors | None:
    """Return factors by weight as a reshape and an order; None where there is nothing to say."""
    names = {}
    before = []
    for logical, factors in enumerate(sizes):
        letter = "ijklmnop"[logical]
        group: list[tuple[str, int | None]] = []
        for place, (weight, size) in enumerate(factors.items()):
            names[logical, weight] = letter if len(factors) == 1 else f"{letter}{place}"
            group.append((names[logical, weight], size if place else None))
        before.append(tuple(group))
    after = tuple(tuple(names[key] for key in keys) for keys in groups)
    if after == tuple((name,) for group in before for name, _ in group) and all(
        len(group) == 1 for group in before
    ):
        return None
    return Factors(tuple(before), after)
