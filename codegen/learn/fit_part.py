"""Find the simplest part of a stored layout that matches the contents of one tensor."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shardwright.codegen.learn.fit_dim import DimFit, Range
from shardwright.codegen.learn.held import HeldBlock
from shardwright.codegen.learn.sampled import AnyHeld
from shardwright.ir.arrays import Integers
from shardwright.ir.dim_cuts import DimCut
from shardwright.ir.errors import InputError
from shardwright.ir.factors import Factors
from shardwright.ir.mesh import Mesh
from shardwright.ir.parts import TensorPart

EMPTY = (0, 0)

Slot = list[HeldBlock | None]
"""The block of one part at each mesh position; None at positions where the part is empty."""


def _box(block: HeldBlock, dim: int) -> list[tuple[int, int]] | None:
    """Return a block's range along each logical dimension; None if its elements are in a different
    order."""
    if len(block.adds) != len(block.base):
        return None
    found = []
    for each, (base, add) in enumerate(zip(block.base, block.adds, strict=True)):
        if loops(add) not in ([], [(each, 1, len(add))]):
            return None
        found.append((base, base + len(add)))
    return found


Entry = tuple[int, int, int]
"""A loop over a logical dimension: the dimension, the step, and the number of steps."""


def loops(add: Integers) -> list[Entry] | None:
    """Return the loops, major to minor, that give the logical index of each position along a
    dimension; None if no loops describe it."""
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
class Seen:
    """A buffer at all mesh positions, as blocks along a dimension."""

    held: tuple[AnyHeld, ...]
    shapes: Mapping[str, tuple[int, ...]]
    mesh: Mesh
    dim: int

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents of all dimensions of all tensors."""
        return tuple(dict.fromkeys(e for shape in self.shapes.values() for e in shape))


@dataclass(frozen=True, eq=False)
class PartFit:
    """One part to fit. `pads`: its extent along the stack, padding included, at every position."""

    view: Seen
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
        """Return the simplest part that matches the slot and is empty wherever the slot is
        empty, and the dimension along which the part is stacked; None if there is no such part."""
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
        """Return the simplest part that matches the contents of all positions, and the dimension
        along which it is stacked; None if there is no such part.

        `empty`: the stored dimension whose range is empty at positions outside the slot. `whole`:
        whether to leave the stacked dimension uncut.
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
        pads = None
        if dim == self.view.dim:
            pads = self.pads
        elif dim is not None:
            full = [held.shape[dim] if held.size else 0 for held in self.view.held]
            pairs = zip(self.slot, full, strict=True)
            if any(b is not None and len(b.adds[dim]) < extent for b, extent in pairs):
                pads = max(full)
        fit = DimFit(self.view.mesh, extent, tuple(ranges), pads, self.view.extents)
        return next(fit.cuts(most), None)

    def _order(self) -> list[list[Entry]] | None:
        """Return, for each dimension of the buffer, the loops that map it to the tensor, taken from
        the block with the most loops. Return None if any block has no such loops."""
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
            if not nest:  # a dimension of extent 1: of the tensor if one is left, else new
                nest.append((free.pop(0), 1, 1) if free else (0, -place, 1))
        return found

    def _with_factors(
        self, order: list[list[Entry]], most: int, empty: int | None
    ) -> tuple[TensorPart, int] | None:
        """Return the part whose elements run through the tensor in the order of the loops `order`,
        and the dimension along which it is stacked; None if there is no such part."""
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
        """Return the factors of each logical dimension by weight, major to minor; a factor of
        weight 0 or less has size 1. Return None if a weight does not divide the next larger one."""
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
    """Return factors, given by weight, as a reshape and an order of its dimensions; None for an
    identity."""
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
