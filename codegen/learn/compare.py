"""Where two layouts differ, or a loader from a layout: as ranges with names."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from shardwright.codegen.learn.held import PADDING, HeldBlock, numbered, of_array, of_layout
from shardwright.ir.arrays import Integers
from shardwright.ir.errors import InputError, in_a_line
from shardwright.ir.relayout import check_alike
from shardwright.ir.stored import Stored

Load = Callable[[int, dict[str, Any]], Mapping[str, Any]]
"""A loader: of a device id and the logical tensors, what the device stores, by buffer."""

MOST_LINES = 40
"""Differences that are printed."""
MOST_RUNS = 8
"""Ranges in which one part differs, before it is said to be in another order."""


@dataclass(frozen=True)
class Difference:
    """A range of a buffer of one device: what is expected there, and what is found.

    `range`: half-open, of the buffer's `along`, as rows; None for buffers of two shapes.
    """

    device: int
    buffer: str
    along: str
    range: tuple[int, int] | None
    expected: str
    found: str

    def __str__(self) -> str:
        if self.range is None:
            return f"{self.buffer} of rank {self.device} has {self.found}, expected {self.expected}"
        at = f"{self.buffer} {self.along} {self.range[0]} to {self.range[1]}"
        verb = "holds" if self.expected == PADDING else "hold"
        return f"{self.expected} of rank {self.device} {verb} {self.found} ({at})"


@dataclass(frozen=True)
class Comparison:
    """All differences, by device and place; `str` has one a line."""

    differences: tuple[Difference, ...]

    @property
    def same(self) -> bool:
        """Whether there are none."""
        return not self.differences

    def __str__(self) -> str:
        lines = [str(each) for each in self.differences[:MOST_LINES]]
        more = len(self.differences) - MOST_LINES
        return "\n".join(lines + [f"and {more:,} more"] * (more > 0)) or "no difference"


def compare(found: Stored | Load, expected: Stored) -> Comparison:
    """Return where a layout, or what a loader stores, differs from the layout that is expected.

    `found`: a layout on the same devices, or `load(rank, tensors)`, which gives the buffers of a
    device by name, as arrays or tensors of torch on the CPU. It runs twice for each device, on
    numpy arrays of float64 in which every element is its own number, from 1 on: zeros are padding,
    and values that are computed rise otherwise than their element in the second run. Raises
    InputError for layouts of other tensors, devices or buffers.
    """
    if not isinstance(expected, Stored):
        raise InputError(
            "what is expected must be a stored layout",
            argument="expected",
            got=in_a_line(expected),
            expected="sw.Stored(mesh, tensors, layout, dtype)",
        )
    if isinstance(found, Stored):
        return Comparison(tuple(_of_layouts(found, expected)))
    if callable(found):
        return Comparison(tuple(_of_loader(found, expected)))
    raise InputError(
        "what is found must be a stored layout or a loader",
        argument="found",
        got=in_a_line(found),
        expected="sw.Stored(…), or a function load(rank, tensors)",
    )


def _of_layouts(found: Stored, expected: Stored) -> Iterator[Difference]:
    check_alike(expected, found)
    if {*found.mesh.device_ids} != {*expected.mesh.device_ids}:
        raise InputError(
            "both layouts must be on the same devices",
            argument="found",
            got=found.mesh,
            expected=str(expected.mesh),
        )
    _check_buffers([*found.bound], expected)
    for position, device in enumerate(expected.mesh.device_ids):
        other = found.mesh.device_ids.index(device)
        for name, buffer in expected.bound.items():
            pair = of_layout(found, name, other), of_layout(expected, name, position)
            shapes = found.bound[name].shape(other), buffer.shape(position)
            mine = _Buffer(device, name, buffer.dim, len(shapes[1]), expected.tensors)
            yield from mine.differences(*pair, shapes)


def _of_loader(load: Load, expected: Stored) -> Iterator[Difference]:
    for position, device in enumerate(expected.mesh.device_ids):
        arrays = _held(load, device, expected)
        for name, buffer in expected.bound.items():
            array, shape = arrays[name], buffer.shape(position)
            mine = _Buffer(device, name, buffer.dim, len(shape), expected.tensors)
            if array.ndim != len(shape):
                yield mine.of_shapes(array.shape, shape)
                continue
            blocks = of_array(array, expected.tensors, buffer.dim)
            theirs = of_layout(expected, name, position)
            yield from mine.differences(blocks, theirs, (array.shape, shape))


def _held(load: Load, device: int, expected: Stored) -> dict[str, npt.NDArray[np.float64]]:
    """Return the numbers of the elements that a loader gives a device; NaN for computed values.

    The loader runs twice: the second time all numbers are higher by as many as there are elements.
    A value that is not moved as it is rises by something else.
    """
    count = sum(math.prod(shape) for shape in expected.tensors.values())
    passes = []
    for first in (1, 1 + count):
        held = load(device, numbered(expected.tensors, first))
        _check_buffers([*held], expected)
        passes.append({name: np.asarray(each, np.float64) for name, each in held.items()})
    low, high = passes
    return {
        name: np.where(
            (high[name] - array == count) | (array == high[name]) & (array == 0), array, np.nan
        )
        for name, array in low.items()
    }


def _check_buffers(found: list[str], expected: Stored) -> None:
    if {*found} != {*expected.bound}:
        raise InputError(
            "both sides must have the same buffers",
            argument="found",
            got=", ".join(sorted(found)) or "none",
            expected=", ".join(sorted(expected.bound)),
        )


@dataclass(frozen=True)
class _Buffer:
    """A buffer of a device, in blocks along a dimension."""

    device: int
    name: str
    dim: int
    rank: int
    shapes: Mapping[str, tuple[int, ...]]

    def of_shapes(self, found: tuple[int, ...], expected: tuple[int, ...]) -> Difference:
        """Return the difference of two shapes."""
        said = str(expected), f"shape {found}"
        return Difference(self.device, self.name, "", None, *said)

    def differences(
        self,
        found: list[HeldBlock],
        expected: list[HeldBlock],
        shapes: tuple[tuple[int, ...], tuple[int, ...]],
    ) -> Iterator[Difference]:
        """Yield where the blocks of two sides differ."""
        if shapes[0] != shapes[1]:
            yield self.of_shapes(*shapes)
        if len(shapes[0]) != len(shapes[1]):
            return
        ends = sorted({end for block in found + expected for end in (block.start, block.stop)})
        for low, high in pairwise(ends):
            pair = [self._at(side, low, high) for side in (found, expected)]
            if pair[0] is not None and pair[1] is not None:
                yield from self._of_blocks(pair[0], pair[1])

    def _at(self, blocks: list[HeldBlock], low: int, high: int) -> HeldBlock | None:
        """Return what a side has in a range; None beyond its end."""
        block = next((each for each in blocks if each.start <= low < each.stop), None)
        return None if block is None else block.sliced(self.dim, low, high)

    def _of_blocks(self, found: HeldBlock, expected: HeldBlock) -> Iterator[Difference]:
        for low, high in _runs(found, expected, self.dim):
            ends = found.start + low, found.start + high
            said = self._said(*(side.sliced(self.dim, *ends) for side in (found, expected)))
            along = _named(self.dim, self.rank)
            yield Difference(self.device, self.name, along, ends, *said)

    def _said(self, found: HeldBlock, expected: HeldBlock) -> tuple[str, str]:
        """Return how to call what is expected, and what is found."""
        if found.tensor != expected.tensor or not found.adds:
            return self._called(expected, None), self._called(found, None)
        sets = [_indices(each) for each in (expected, found)]
        moved = [d for d in range(len(sets[0])) if not np.array_equal(sets[0][d], sets[1][d])]
        if not moved:  # the same elements, in another order
            first, *_ = np.flatnonzero(_differ(found, expected).any(axis=0)).tolist()
            order = _listed(_order(found, first))
            return self._called(expected, [first]), f"the same in another order: {order}"
        return self._called(expected, moved), self._called(found, moved)

    def _called(self, block: HeldBlock, dims: list[int] | None) -> str:
        if not block.adds:
            return block.tensor
        sets, shape = _indices(block), self.shapes[block.tensor]
        chosen = dims if dims is not None else _cut_dims(sets, shape)
        said = (f"{_named(d, len(shape))} {_listed(sets[d])}" for d in chosen)
        return f"{block.tensor} {', '.join(said)}"


def _cut_dims(sets: list[Integers], shape: tuple[int, ...]) -> list[int]:
    """Return the dimensions that are not whole; the first if all are."""
    cut = [d for d, extent in enumerate(shape) if sets[d].size != extent]
    return cut or [0]


def _differ(found: HeldBlock, expected: HeldBlock) -> Integers:
    """Return by how much the logical index differs, for places along every dimension: int64 [n,
    rank], 0 alone where nothing does."""
    rows = [np.asarray(found.base) - np.asarray(expected.base)]
    for a, b in zip(found.adds, expected.adds, strict=True):
        common = min(len(a), len(b))
        rows.extend(a[:common] - b[:common])
    return np.stack(rows)


def _runs(found: HeldBlock, expected: HeldBlock, dim: int) -> list[tuple[int, int]]:
    """Return the ranges along a dimension, from the start of both blocks, where they differ."""
    whole = [(0, found.width)]
    if found.tensor != expected.tensor:
        return whole
    if not found.adds:
        return []
    base = np.asarray(found.base) - np.asarray(expected.base)
    for axis, (a, b) in enumerate(zip(found.adds, expected.adds, strict=True)):
        if axis != dim and not np.array_equal(a, b):
            return whole
    shift = found.adds[dim] - expected.adds[dim] + base
    cuts = np.flatnonzero((np.diff(shift, axis=0) != 0).any(axis=1)) + 1
    ends = [0, *(int(cut) for cut in cuts), found.width]
    runs = [(low, high) for low, high in pairwise(ends) if shift[low].any()]
    if len(runs) <= MOST_RUNS:
        return runs
    return [(runs[0][0], runs[-1][1])]


def _indices(block: HeldBlock) -> list[Integers]:
    """Return the logical indices along each dimension, sorted."""
    return [np.unique(_order(block, dim)) for dim in range(len(block.base))]


def _order(block: HeldBlock, dim: int) -> Integers:
    """Return the indices along a logical dimension in the order that they are stored."""
    order = np.array([block.base[dim]], dtype=np.int64)
    for add in block.adds:
        if add[:, dim].any():
            order = np.add.outer(order, add[:, dim]).reshape(-1)
    return order


def _named(dim: int, rank: int) -> str:
    """Return what the elements along a dimension are called."""
    if rank == 1:
        return "elements"
    return ("rows", "columns")[dim] if dim < 2 else f"indices of dimension {dim}"


def _listed(indices: Integers) -> str:
    """Return indices as `4 to 8`, `0 to 30 by 2`, or the first of them."""
    steps = {*np.diff(indices).tolist()}
    first, last = int(indices[0]), int(indices[-1])
    if not steps or steps == {1}:
        return f"{first} to {last + 1}"
    if len(steps) == 1 and min(steps) > 0:
        return f"{first} to {last + 1} by {steps.pop()}"
    return ", ".join(map(str, indices[:8].tolist())) + ", …" * (indices.size > 8)
