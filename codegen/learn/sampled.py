"""Learn large buffers from a sample: all positions along each dimension, at a few positions of the
others.

A buffer's rows along a dimension form runs: rows of one tensor whose elements are consecutive in
the same way. A first round of passes finds where runs begin; a second round reads whole lines at
these positions. So a sample contains everything that a fit needs, in little more than one line per
run. `pieces.py` then checks the fitted layout on every element.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shardwright.codegen.learn.held import (
    PADDING,
    SCATTERED,
    UNKNOWN,
    HeldBlock,
    of_held,
)
from shardwright.codegen.learn.logical import Floats, LogicalTensor
from shardwright.codegen.learn.probe import (
    COMPUTED,
    PADDED,
    Buffers,
    Codes,
    HeldBuffer,
    Load,
    probed,
)
from shardwright.ir.arrays import Integers
from shardwright.ir.errors import InputError
from shardwright.ir.parts import BoundBuffer, Shapes

LARGE = 2**22
"""The largest total number of elements of all logical tensors up to which every buffer is read
whole."""
SMALL = 2**14
"""The number of elements up to which a buffer is read whole even if the tensors exceed `LARGE`."""
MOST_READ = 2**24
"""The maximum number of positions of a buffer to read for the lines along one dimension."""
_FEW = 8

Places: TypeAlias = tuple[Integers, ...]
"""The positions that were read along each dimension."""


@dataclass(frozen=True)
class SampledBuffer:
    """A sample of a large buffer. `lines`: for each dimension, the positions of the sampled lines
    along it, and their elements."""

    shape: tuple[int, ...]
    lines: tuple[tuple[Places, HeldBuffer], ...]

    @property
    def size(self) -> int:
        """The number of positions."""
        return math.prod(self.shape)

    @property
    def has_elements(self) -> bool:
        """Whether any sampled position has an element of a tensor."""
        return any(held.has_elements for _, held in self.lines)

    @property
    def is_moved(self) -> bool:
        """Whether every sampled value is an unchanged element, or padding."""
        return all(held.is_moved for _, held in self.lines)

    def split(self, dim: int, length: int) -> SampledBuffer:
        """Split a dimension of the buffer in two; the second has extent `length`.

        Lines along other dimensions are kept only at positions below `length`.
        """
        shape = (*self.shape[:dim], self.shape[dim] // length, length, *self.shape[dim + 1 :])
        found = []
        for along, (places, held) in enumerate(self.lines):
            here = places[dim]
            if along == dim:
                pair = (np.arange(len(here) // length), np.arange(length))
            else:
                first = np.flatnonzero(here < length)
                held = _taken(held, dim, first)
                pair = (np.zeros(1, dtype=np.int64), here[first])
            placed = (*places[:dim], *pair, *places[dim + 1 :])
            line = placed, held.reshaped(tuple(map(len, placed)))
            found += [line] * (2 if along == dim else 1)
        return SampledBuffer(shape, tuple(found))

    def blocks(self, shapes: Shapes, dim: int) -> list[HeldBlock]:
        """Return the blocks of the buffer along a dimension."""
        starts = _run_starts(self.lines[dim][1], dim)
        found: list[HeldBlock] = []
        for low, high in zip(starts, [*starts[1:], self.shape[dim]], strict=True):
            block = self._block(shapes, dim, low, high)
            if found and not (found[-1].adds or block.adds) and found[-1].way == block.way:
                found[-1] = replace(found[-1], width=found[-1].width + block.width)
            else:
                found.append(block)
        return found

    def _block(self, shapes: Shapes, dim: int, low: int, high: int) -> HeldBlock:
        odd = HeldBlock(low, SCATTERED, width=high - low)
        lines = [self._line(along, dim, low, high) for along in range(len(self.shape))]
        if any(line is None for line in lines):
            return odd
        tensors = np.concatenate([line.tensors for line in lines if line is not None])
        if not (tensors != PADDED).any():
            return replace(odd, tensor=PADDING)
        ways = {
            (line.tensors[0], line.times[0], line.plus[0]) for line in lines if line is not None
        }
        adds = []
        for line in lines:
            assert line is not None
            filled = np.flatnonzero(line.tensors != PADDED)
            ends = slice(0, int(filled[-1]) + 1 if filled.size else 1)
            ways |= {*zip(line.tensors[ends], line.times[ends], line.plus[ends], strict=True)}
            adds.append(line.index[ends] - line.index[0])
        if any(way[0] == COMPUTED for way in ways):
            return replace(odd, tensor=UNKNOWN)
        if len(ways) > 1:
            return odd
        ((number, times, plus),) = ways
        name, shape = [*shapes.items()][int(number)]
        base = lines[dim].index[0, : len(shape)]  # type: ignore[union-attr]
        whole = tuple(add[:, : len(shape)] for add in adds)
        ints = tuple(map(int, base))
        return HeldBlock(low, name, ints, whole, high - low, float(times), float(plus))

    def _line(self, along: int, dim: int, low: int, high: int) -> HeldBuffer | None:
        """Return the line along a dimension through the first position of a run of rows; None if it
        was not sampled."""
        places, held = self.lines[along]
        at = []
        for each, read in enumerate(places):
            wanted = low if each == dim else 0
            place = int(np.searchsorted(read, wanted))
            if each == along:
                at.append(slice(low, high) if each == dim else slice(None))
            elif place < len(read) and read[place] == wanted:
                at.append(slice(place, place + 1))
            else:
                return None
        part = HeldBuffer(*(getattr(held, name)[tuple(at)] for name in _FIELDS))
        return part.reshaped((part.size,))

    def holds(self, bound: BoundBuffer, position: int, numbers: Mapping[str, int]) -> bool:
        """Return whether a layout puts every sampled element at its position."""
        shape = bound.shape(position)
        if math.prod(shape) != self.size:
            return False
        for places, held in self.lines:
            flat = np.ravel_multi_index(np.ix_(*places), self.shape).reshape(-1)
            tensors, index = _expected(bound, position, np.unravel_index(flat, shape), numbers)
            index = np.pad(index, ((0, 0), (0, held.index.shape[-1] - index.shape[1])))
            if (tensors != held.tensors.reshape(-1)).any():
                return False
            if (index != np.where(tensors[:, None] >= 0, held.index.reshape(index.shape), 0)).any():
                return False
        return True


_FIELDS = ("tensors", "index", "times", "plus", "computed")

AnyHeld: TypeAlias = HeldBuffer | SampledBuffer


def is_large(shapes: Shapes) -> bool:
    """Return whether buffers of tensors of these shapes are learned from a sample."""
    return sum(map(math.prod, shapes.values())) > LARGE


def blocks_of(held: AnyHeld, shapes: Shapes, dim: int) -> list[HeldBlock]:
    """Return the blocks of a buffer that a loader returned, for tensors of these shapes."""
    if isinstance(held, SampledBuffer):
        return held.blocks(shapes, dim)
    return of_held(held, shapes, dim)


def _expected(
    bound: BoundBuffer, position: int, at: Sequence[Integers], numbers: Mapping[str, int]
) -> tuple[Integers, Integers]:
    """Return two arrays: the index of the tensor and the logical index that a layout has at the
    given positions of a buffer."""
    tensors = np.full(len(at[0]), PADDED, dtype=np.int64)
    rank = 1 + max(axis.dim for part in bound.parts for group in part.axes for axis in group)
    index = np.zeros((len(at[0]), rank), dtype=np.int64)
    for part, start in zip(bound.parts, bound.starts(position), strict=False):
        box = part.box(position)
        if any(low >= high for low, high in box):
            continue
        begins = [start if dim == bound.dim else 0 for dim in range(len(box))]
        inside = np.ones(len(at[0]), dtype=np.bool_)
        for places, begin, (low, high) in zip(at, begins, box, strict=True):
            inside &= (places >= begin) & (places < begin + high - low)
        tensors[inside] = numbers[part.tensor]
        for dim, (low, high) in enumerate(box):
            local = at[dim][inside] - begins[dim]
            for logical, added in part.along(dim, low, high).items():
                index[inside, logical] += added[local]
    return tensors, index


def _taken(held: HeldBuffer, dim: int, places: Integers) -> HeldBuffer:
    return HeldBuffer(*(np.take(getattr(held, name), places, axis=dim) for name in _FIELDS))


def _run_starts(held: HeldBuffer, dim: int) -> list[int]:
    """Return the first row of each run along a dimension: its tensors differ from the previous
    row's, or its elements are consecutive in a different way."""
    rows = {name: np.moveaxis(getattr(held, name), dim, 0) for name in _FIELDS[:4]}
    count = rows["tensors"].shape[0]
    kinds = [rows[name].reshape(count, -1) for name in ("tensors", "times", "plus")]
    index = rows["index"].reshape(count, kinds[0].shape[1], -1)
    index = np.where(kinds[0][..., None] >= 0, index - index[:, :1], 0)
    kinds.append(index.reshape(count, -1))
    new: npt.NDArray[np.bool_] = np.zeros(count, dtype=np.bool_)
    new[0] = True
    for each in kinds:
        new[1:] |= (each[1:] != each[:-1]).any(axis=1)
    return [int(row) for row in np.flatnonzero(new)]


def _few(extent: int) -> Integers:
    """Return some positions along a dimension: the first two, the last and random ones; all if
    the dimension is short."""
    if extent <= 2 * _FEW:
        return np.arange(extent, dtype=np.int64)
    random = np.random.default_rng(extent).integers(0, extent, _FEW)
    return np.unique(np.concatenate([[0, 1, extent - 1], random])).astype(np.int64)


@dataclass(frozen=True)
class _Sample:
    """The positions to sample in each buffer. `starts`: the positions at which runs begin, by
    buffer and dimension."""

    starts: Mapping[tuple[str, int], Sequence[int]]

    def places(self, name: str, shape: tuple[int, ...], along: int) -> Places:
        found = tuple(
            np.arange(extent, dtype=np.int64)
            if dim == along
            else np.union1d(_few(extent), self.starts.get((name, dim), ())).astype(np.int64)
            for dim, extent in enumerate(shape)
        )
        if math.prod(map(len, found)) > MOST_READ:
            raise InputError(
                "the loader cuts a large buffer into too many blocks to sample",
                argument="load",
                got=f"{math.prod(map(len, found)):,} elements to read of {name}, of shape {shape}",
                expected=f"at most {MOST_READ:,} elements, or smaller tensors with sw.learn_sizes",
            )
        return found

    def taken(self, held: dict[str, Floats]) -> dict[str, Floats]:
        """Return the sampled elements of one pass, by buffer and dimension; small buffers are taken
        whole."""
        found = {}
        for name, each in held.items():
            if each.size <= SMALL or not each.ndim:
                found[f"{name}:"] = each
                continue
            for dim in range(each.ndim):
                found[f"{name}:{dim}"] = each[np.ix_(*self.places(name, each.shape, dim))]
        return found


def probe_sampled(
    load: Load, tensors: Mapping[str, LogicalTensor], devices: Sequence[int], dtype: str
) -> dict[int, dict[str, AnyHeld]]:
    """Return the buffers that a loader returns on each device, like `probe`; large buffers are
    sampled."""
    codes = Codes.of(tensors, dtype)
    return {device: _of_device(load, tensors, device, codes) for device in devices}


def _of_device(
    load: Load, tensors: Mapping[str, LogicalTensor], device: int, codes: Codes
) -> dict[str, AnyHeld]:
    shapes: dict[str, tuple[int, ...]] = {}

    def taken(sample: _Sample, held: dict[str, Floats]) -> dict[str, Floats]:
        shapes.update({name: each.shape for name, each in held.items()})
        return sample.taken(held)

    def read(sample: _Sample) -> Buffers:
        return probed(load, tensors, device, codes, take=lambda held: taken(sample, held))

    first = read(_Sample({}))
    starts = {}
    for key, held in first.items():
        name, _, dim = key.rpartition(":")
        if dim:
            starts[name, int(dim)] = _run_starts(held, int(dim))
    second = _Sample(starts)
    known = all({*rows} <= {*_few(shapes[name][dim])} for (name, dim), rows in starts.items())
    lines = first if known else read(second)
    found: dict[str, AnyHeld] = {}
    for name, shape in shapes.items():
        if f"{name}:" in lines:
            found[name] = lines[f"{name}:"]
            continue
        sample = _Sample({}) if known else second
        found[name] = SampledBuffer(
            shape,
            tuple((sample.places(name, shape, d), lines[f"{name}:{d}"]) for d in range(len(shape))),
        )
    return found
