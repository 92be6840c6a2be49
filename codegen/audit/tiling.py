"""Tilings of values over devices, found by tracing elements, and the equivalent shardings.

A tiling is a grid of equal tiles, and the tile of each device.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from shardwright.codegen.audit.moves import Elements, trace
from shardwright.codegen.audit.values import HloValues
from shardwright.codegen.spec.hlo.text import HloInstruction
from shardwright.ir.arrays import Integers
from shardwright.ir.errors import InputError
from shardwright.ir.mesh import Mesh
from shardwright.ir.sharding import Sharding


@dataclass(frozen=True)
class HloTiling:
    """A tiling. `counts`: the number of tiles along each dimension; `tiles`: the row-major number
    of each device's tile."""

    counts: tuple[int, ...]
    tiles: tuple[int, ...]

    def sharding(self, mesh: Mesh, devices: list[int]) -> Sharding | None:
        """Return the sharding on a mesh of these devices, or None if axes cannot express it."""
        by_tile: dict[int, list[int]] = {number: [] for number in range(math.prod(self.counts))}
        for device in devices:
            by_tile[self.tiles[device]].append(device)
        copies = {len(holders) for holders in by_tile.values()}
        if len(copies) != 1 or 0 in copies:
            return None
        listed = ",".join(map(str, itertools.chain.from_iterable(by_tile.values())))
        grid = ",".join(map(str, (*self.counts, *copies)))
        text = f"{{devices=[{grid}]{listed} last_tile_dim_replicate}}"
        try:
            return mesh.sharding(text, len(self.counts))
        except InputError:
            return None


def source_tiling(values: HloValues, gathered: HloInstruction) -> HloTiling | None:
    """Return the tiling of a gathered value before the gather, or None unless its tiles have equal
    sizes and each device has exactly one.

    `gathered`: the instruction whose value is whole on each device.
    """
    shape = gathered.arrays[0].shape
    counts = [_count(values, gathered, axis) for axis in range(len(shape))]
    if any(count is None or extent % count for count, extent in zip(counts, shape, strict=True)):
        return None
    known = tuple(count for count in counts if count is not None)
    if math.prod(known) > values.devices:
        return None
    owners = _owners(values, gathered, known, last=False)
    if not np.array_equal(owners, _owners(values, gathered, known, last=True)):
        return None
    own = owners == np.arange(values.devices)[:, None]
    if not (own.sum(axis=1) == 1).all():
        return None
    return HloTiling(known, tuple(int(number) for number in own.argmax(axis=1)))


def sliced_tiling(values: HloValues, slicing: HloInstruction) -> HloTiling | None:
    """Return the tiling of a dynamic-slice's operand from which every device keeps its own tile, or
    None unless the device's number selects the tile."""
    whole, sizes = values.operand(slicing), slicing.numbers("dynamic_slice_sizes")
    if whole is None or len(whole.arrays) != 1:
        return None
    shape = whole.arrays[0].shape
    counts: list[int] = []
    number = np.zeros(values.devices, dtype=np.int64)
    for axis, (extent, size) in enumerate(zip(shape, sizes, strict=True)):
        start = values.index(values.operand(slicing, 1 + axis))
        if start is None or start.ndim != 1 or extent % size:
            return None
        start = np.clip(start, 0, extent - size)
        if (start % size).any():
            return None
        counts.append(extent // size)
        number = number * counts[-1] + start // size
    if len({*number.tolist()}) == 1:
        return None
    return HloTiling(tuple(counts), tuple(int(tile) for tile in number))


def _count(values: HloValues, gathered: HloInstruction, axis: int) -> int | None:
    """Return the number of equal parts of a dimension, judging from the owners of the elements
    along it, or None if the parts are unequal."""
    shape, devices = gathered.arrays[0].shape, values.devices
    extent = shape[axis]
    at = np.zeros((devices * extent, len(shape)), dtype=np.int64)
    at[:, axis] = np.tile(np.arange(extent), devices)
    asked = np.repeat(np.arange(devices), extent)
    owners = trace(values, gathered, Elements(asked, at)).elements.devices.reshape(devices, extent)
    cuts = np.flatnonzero((np.diff(owners, axis=1) != 0).any(axis=0)) + 1
    size = int(cuts[0]) if len(cuts) else extent
    if extent % size or cuts.tolist() != list(range(size, extent, size)):
        return None
    return extent // size


def _owners(
    values: HloValues, gathered: HloInstruction, counts: tuple[int, ...], *, last: bool
) -> Integers:
    """Return the owner of the first (or last) element of every tile, as each device sees it."""
    shape, devices = gathered.arrays[0].shape, values.devices
    sizes = np.array([extent // count for extent, count in zip(shape, counts, strict=True)])
    corners = np.indices(counts).reshape(len(counts), -1).T * sizes + (sizes - 1) * last
    at = np.tile(corners.astype(np.int64), (devices, 1))
    asked = np.repeat(np.arange(devices), len(corners))
    found = trace(values, gathered, Elements(asked, at)).elements.devices
    return found.reshape(devices, len(corners))
