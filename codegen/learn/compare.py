"""Compare layouts and loaders. A difference is a range of a buffer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from shardwright.codegen.learn.held import (
    PADDING,
    SCATTERED,
    UNKNOWN,
    HeldBlock,
    best_dim,
    called,
    indices_of,
    listed,
    named,
    order_of,
)
from shardwright.codegen.learn.learn import Learned, learn, read_ranks
from shardwright.codegen.learn.logical import LogicalTensor, element_type, read_logical
from shardwright.codegen.learn.probe import Load, probe
from shardwright.codegen.learn.sampled import LARGE, is_large
from shardwright.codegen.learn.sides import HeldSide, LayoutSide, Side, walked
from shardwright.ir.arrays import Integers
from shardwright.ir.errors import InputError, in_a_line
from shardwright.ir.parts import BoundBuffer
from shardwright.ir.relayout import check_alike
from shardwright.ir.stored import Stored

MOST_LINES = 40
"""The maximum number of differences to print."""
MOST_RUNS = 8
"""The maximum number of ranges reported for one part of a buffer. If there are more, one range
covers them all."""


@dataclass(frozen=True)
class Difference:
    """A range of a buffer of one device, with its expected and its actual contents.

    `range`: half-open positions along a dimension of the buffer, which `along` names (for example
    "rows"); None if the two shapes differ.
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
    """All differences, by device and position; `str` prints one per line."""

    differences: tuple[Difference, ...]

    @property
    def same(self) -> bool:
        """Whether there are no differences."""
        return not self.differences

    def __str__(self) -> str:
        lines = [str(each) for each in self.differences[:MOST_LINES]]
        more = len(self.differences) - MOST_LINES
        return "\n".join(lines + [f"and {more:,} more"] * (more > 0)) or "no difference"


def compare(
    found: Stored | Learned | Load,
    expected: Stored | Learned | Load,
    *,
    logical: Mapping[str, object] | None = None,
    ranks: object = None,
    dtype: object = None,
) -> Comparison:
    """Compare a layout or a loader with the expected one.

    Each side is a layout, a result of `sw.learn`, or a loader `load(rank, tensors)` that returns
    the buffers of a device by name, and runs as for `sw.learn`. `logical`, `ranks` and `dtype` are
    as for `sw.learn`. By default they come from the side that is not a loader: its tensors and
    devices and, for a result of `sw.learn`, the kind and element type of its tensors. Raises
    InputError if the sides differ in tensors, devices or buffers, and for two loaders without
    `logical` and `ranks`.
    """
    sides: list[Side] = []
    other = next((each for each in (expected, found) if isinstance(each, Stored | Learned)), None)
    for argument, given in (("found", found), ("expected", expected)):
        if isinstance(given, Stored):
            sides.append(LayoutSide(given))
        elif isinstance(given, Learned):
            sides.append(_of_learned(given, argument))
        elif callable(given):
            try:
                sides.append(_run(given, argument, other, logical, ranks, dtype))
            except InputError as error:
                place = argument if error.argument == "load" else error.argument or ""
                raise error.named(place) from error.__cause__
        else:
            raise InputError(
                "each side must be a layout or a loader",
                argument=argument,
                got=in_a_line(given),
                expected="sw.Stored(…), sw.learn(…), or a function load(rank, tensors)",
            )
    if isinstance(found, Stored) and isinstance(expected, Stored):
        check_alike(expected, found, "found")
    pair = [side.stored for side in sides if isinstance(side, LayoutSide)]
    if len(pair) == 2:
        _check_devices(sides[0], sides[1])
        _check_buffers([*pair[0].bound], [*pair[1].bound])
        if any(_of_other_form(*(each.bound[name] for each in pair)) for name in pair[0].bound):
            sides = [walked(each) for each in sides if isinstance(each, LayoutSide)]
    return Comparison(tuple(_differences(*sides)))


def _of_other_form(found: BoundBuffer, expected: BoundBuffer) -> bool:
    """Return whether parts of two buffers differ in rank, or whether both buffers have several
    parts, stacked along different dimensions."""
    ranks = {len(part.cuts) for part in found.parts + expected.parts}
    many = min(len(found.parts), len(expected.parts)) > 1
    return len(ranks) > 1 or (many and found.dim != expected.dim)


def _of_learned(given: Learned, argument: str) -> Side:
    """Return the side of a comparison for a result of `sw.learn`. Raise InputError if a large
    buffer has no layout, because only a sample of its elements is known."""
    if not given.sampled:
        return HeldSide(given.tensors, given.held)
    lacking = [name for each in given.held.values() for name in each if name not in given.layouts]
    if lacking:
        raise InputError(
            "a large buffer can be compared only if it has a layout",
            argument=argument,
            got=next(iter(given.findings), lacking[0]),
            expected=f"tensors of at most {LARGE:,} elements in total, which are compared in full",
        )
    layouts = Stored(given.mesh, given.tensors, given.layouts, given.dtype, partial=True)
    return LayoutSide(layouts, fitted=True)


def _run(
    load: Load,
    argument: str,
    other: Stored | Learned | None,
    logical: object,
    ranks: object,
    dtype: object,
) -> Side:
    """Run a loader and return its side of the comparison. By default, use the tensors and ranks
    of the other side."""
    if other is None and (logical is None or ranks is None):
        raise InputError(
            "comparing two loaders requires logical tensors and ranks",
            argument="logical" if logical is None else "ranks",
            got="none",
            expected='logical={"q": (32, 16)}, ranks=range(4)',
        )
    if logical is None and isinstance(other, Learned):
        logical = {
            name: LogicalTensor.made(shape, other.like, other.dtype)
            for name, shape in other.tensors.items()
        }
        dtype = other.dtype if dtype is None else dtype
    tensors = read_logical(logical if other is None or logical is not None else other.tensors)
    mesh = other.mesh if ranks is None and other is not None else read_ranks(ranks)
    exact = element_type(tensors, dtype)
    shapes = {name: each.shape for name, each in tensors.items()}
    if is_large(shapes):
        learned = learn(load, logical=tensors, ranks=mesh, dtype=exact)
        return _of_learned(learned, argument)
    return HeldSide(shapes, probe(load, tensors, mesh.device_ids, exact))


def _differences(found: Side, expected: Side) -> Iterator[Difference]:
    _check_devices(found, expected)
    for name in {*found.tensors} & {*expected.tensors}:
        pair = found.tensors[name], expected.tensors[name]
        if pair[0] != pair[1]:
            raise InputError(
                "both sides must have logical tensors of the same shapes",
                argument="found",
                got=f"{name} {pair[0]}",
                expected=f"{name} {pair[1]}",
            )
    for device in expected.devices:
        names = expected.names(device)
        _check_buffers(found.names(device), names)
        for name in names:
            yield from _of_buffer(found, expected, device, name)


def _check_devices(found: Side, expected: Side) -> None:
    if {*found.devices} != {*expected.devices}:
        raise InputError(
            "both sides must be on the same devices",
            argument="found",
            got=", ".join(map(str, sorted(found.devices))),
            expected=", ".join(map(str, sorted(expected.devices))),
        )


def _check_buffers(found: list[str], expected: list[str]) -> None:
    if {*found} != {*expected}:
        raise InputError(
            "both sides must have the same buffers",
            argument="found",
            got=", ".join(sorted(found)) or "none",
            expected=", ".join(sorted(expected)) or "none",
        )


def _of_buffer(found: Side, expected: Side, device: int, name: str) -> Iterator[Difference]:
    wanted = expected.shape(device, name, None)
    shape = found.shape(device, name, wanted)
    wanted = expected.shape(device, name, shape)
    same = None
    dim = expected.dim(name) if expected.dim(name) is not None else found.dim(name)
    if isinstance(found, HeldSide) and isinstance(expected, HeldSide):
        pair = [side.whole(device, name) for side in (found, expected)]
        dim = best_dim(pair, expected.tensors)
        if shape == wanted:
            same = pair[0].reshaped(shape).same(pair[1].reshaped(wanted))
            if same.all():
                return
    shapes = {**found.tensors, **expected.tensors}
    mine = _Buffer(device, name, dim or 0, len(wanted), shapes, same)
    if len(shape) != len(wanted):
        yield mine.of_shapes(shape, wanted)
        return
    sides = ((found, shape), (expected, wanted))
    blocks = [side.blocks(device, name, dim or 0, each) for side, each in sides]
    yield from mine.differences(blocks[0], blocks[1], (shape, wanted))


@dataclass(frozen=True)
class _Buffer:
    device: int
    name: str
    dim: int
    rank: int
    shapes: Mapping[str, tuple[int, ...]]
    same: npt.NDArray[np.bool_] | None = None  # whether each position is equal, if known

    def of_shapes(self, found: tuple[int, ...], expected: tuple[int, ...]) -> Difference:
        said = str(expected), f"shape {found}"
        return Difference(self.device, self.name, "", None, *said)

    def differences(
        self,
        found: list[HeldBlock],
        expected: list[HeldBlock],
        shapes: tuple[tuple[int, ...], tuple[int, ...]],
    ) -> Iterator[Difference]:
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
        block = next((each for each in blocks if each.start <= low < each.stop), None)
        return None if block is None else block.sliced(self.dim, low, high)

    def _of_blocks(self, found: HeldBlock, expected: HeldBlock) -> Iterator[Difference]:
        for low, high in self._runs(found, expected):
            ends = found.start + low, found.start + high
            said = self._said(*(side.sliced(self.dim, *ends) for side in (found, expected)))
            along = named(self.dim, self.rank)
            yield Difference(self.device, self.name, along, ends, *said)

    def _runs(self, found: HeldBlock, expected: HeldBlock) -> list[tuple[int, int]]:
        """Return the ranges in which two blocks with the same start differ, as positions from that
        start."""
        if found.way != expected.way or found.tensor not in (UNKNOWN, SCATTERED):
            return _runs(found, expected, self.dim)
        if self.same is None:
            return [(0, found.width)]
        lines = np.moveaxis(self.same, self.dim, 0)[found.start : found.stop]
        differ = ~lines.reshape(found.width, -1).all(axis=1)
        ends = np.flatnonzero(np.diff(np.concatenate([[0], differ, [0]]).astype(np.int8)))
        return [(int(a), int(b)) for a, b in zip(ends[::2], ends[1::2], strict=True)]

    def _said(self, found: HeldBlock, expected: HeldBlock) -> tuple[str, str]:
        """Describe the expected contents, then the contents found."""
        if found.way != expected.way or not found.adds:
            other = "other " * (found.way == expected.way)
            said = f"{other}{called(found, None, self.shapes)}"
            return called(expected, None, self.shapes), said
        sets = [indices_of(each) for each in (expected, found)]
        moved = [d for d in range(len(sets[0])) if not np.array_equal(sets[0][d], sets[1][d])]
        if not moved:  # the same elements in a different order
            places = np.flatnonzero(_differ(found, expected).any(axis=0)).tolist()
            if not places:
                return called(expected, None, self.shapes), "different padding next to them"
            if _turned(found) != _turned(expected):
                turned = "the same with dimensions in a different order"
                return called(expected, None, self.shapes), turned
            first = places[0]
            order = listed(order_of(found, first))
            return called(expected, [first], self.shapes), f"the same in a different order: {order}"
        return called(expected, moved, self.shapes), called(found, moved, self.shapes)


def _turned(block: HeldBlock) -> list[list[int]]:
    """Return, for each dimension of the buffer, the logical dimensions that it traverses."""
    return [np.flatnonzero(add.any(axis=0)).tolist() for add in block.adds]


def _differ(found: HeldBlock, expected: HeldBlock) -> Integers:
    """Return the differences between the logical indices of two blocks: the difference of their
    bases, then one difference for each position along each dimension; int64 [differences, rank]."""
    rows = [np.asarray(found.base) - np.asarray(expected.base)]
    for a, b in zip(found.adds, expected.adds, strict=True):
        common = min(len(a), len(b))
        rows.extend(a[:common] - b[:common])
    return np.stack(rows)


def _runs(found: HeldBlock, expected: HeldBlock, dim: int) -> list[tuple[int, int]]:
    """Return the ranges along a dimension in which two blocks differ, as positions from their
    start."""
    whole = [(0, found.width)]
    if found.way != expected.way:
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
