"""Where the blocks of a matmul's kernel are in its arrays, and how much of a block there is.

An extent need not be a multiple of its blocks: the last one ends with the extent, in whole tiles of
memory, of which XLA keeps whole ones anyway. So nothing is padded before a kernel, or cut after it,
but where parts of an array do not begin at a tile.
"""

import copy

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from .pallas_peers import each, minimum, multiple

BATCH, DIM_I, DIM_J, DIM_K = range(4)
DIMS = {"a": (BATCH, DIM_I, DIM_J), "b": (BATCH, DIM_J, DIM_K), "c": (BATCH, DIM_I, DIM_K)}
LANES = 128


def round_up(extent, unit):
    """Return the least multiple of a unit that is not below an extent."""
    return -(-extent // unit) * unit


def worst(dtype):
    """Return what no result may come by."""
    is_float = jnp.issubdtype(dtype, jnp.floating)
    return jnp.array(jnp.nan if is_float else jnp.iinfo(dtype).max, dtype)


def by_way(way, sizes):
    """Return what is of a way, which is traced where it makes a difference."""
    if len(set(sizes)) == 1:
        return sizes[0]
    return jnp.where(way == 0, *map(jnp.int32, sizes))


def halves_of(part, ways, unit, block):
    """Return how much of a part goes on each way: whole tiles on the first if both then are as many
    blocks, else as much on either."""
    if ways == 1:
        return (part,)
    first = round_up(part // 2, unit)
    halves = (first, part - first)
    counts = {-(-half // block) for half in halves}
    return halves if halves[1] > 0 and len(counts) == 1 else (part // 2, part // 2)


class BlockedArray:
    """An array as a kernel takes it. `dims`: its factors; `extents`: their extents, of a part along
    `factor`, of which it has `parts`, each of `halves`; `unit`: of blocks along the factor;
    `itemsize`: bytes of an element."""

    def __init__(self, dims, extents, factor, parts, halves, unit, itemsize):
        self.dims, self.factor, self.parts, self.halves = dims, factor, parts, halves
        rows = 8 if itemsize > 1 else 32
        self.tiles = dict(zip(dims, (1, rows, LANES), strict=True))
        self.ends = {f: (extents[f],) for f in dims}
        self.pitch, self.is_apart = round_up(halves[0], unit), False
        if factor in dims:
            tile = self.tiles[factor]
            starts = (halves[0] * (len(halves) - 1), sum(halves) * (parts > 1))
            self.is_apart = any(start % tile for start in starts)
            self.ends[factor] = halves
        self.extents = tuple(extents[f] * (parts if f == factor else 1) for f in dims)
        pieces = self.pitch * parts * len(halves)
        shape = [
            pieces if f == factor and self.is_apart else extent
            for f, extent in zip(dims, self.extents, strict=True)
        ]
        # Arrays of few rows are kept in smaller tiles, as those of bytes that are not all of 32.
        if shape[1] <= 4 or itemsize == 1:
            shape[1] = round_up(shape[1], rows)
        self.shape = tuple(shape)

    def apart(self, whole):
        """Return places for what is of one part, halves apart; `whole`: in whole tiles, where the
        blocks that come to it together have to be what is waited for."""
        found = copy.copy(self)
        found.parts, found.is_apart = 1, self.factor in self.dims
        shape = list(self.shape)
        shape[self.dims.index(self.factor)] = self.pitch * len(self.halves)
        found.shape = tuple(shape)
        found.shape = found.given(interpret=whole)
        return found

    def start(self, f, part, way):
        """Return where a half of a part begins along a factor."""
        if f != self.factor:
            return 0
        if self.is_apart:
            return (part * len(self.halves) + way) * self.pitch
        return part * sum(self.halves) + way * self.halves[0]

    def size(self, f, way, number, block):
        """Return how much there is of a block of a number along a factor, in whole tiles."""
        tile = self.tiles[f]
        ends = [round_up(end, tile) for end in self.ends[f]]
        if all(end % block == 0 for end in ends):
            return block
        if max(ends) < block:
            return multiple(by_way(way, ends), tile)
        return multiple(minimum(block, by_way(way, ends) - number * block), tile)

    def half(self, way):
        """Return the slices of what goes on a way of the only part."""
        tile, found = self.tiles[self.factor], [slice(None)] * len(self.dims)
        sizes = [round_up(half, tile) for half in self.halves]
        start = multiple(self.start(self.factor, 0, way), tile)
        found[self.dims.index(self.factor)] = pl.ds(start, multiple(by_way(way, sizes), tile))
        return tuple(found)

    def given(self, interpret):
        """Return the shape that a kernel is given: if it is interpreted all that memory has."""
        if not interpret:
            return self.shape
        tiles = (self.tiles[f] for f in self.dims)
        return tuple(round_up(size, tile) for size, tile in zip(self.shape, tiles, strict=True))

    def packed(self, x, interpret):
        """Return an array as the kernel takes it: as it is, if halves begin at tiles. In memory
        there may be anything behind it, so that is the worst if the kernel is interpreted."""
        if self.is_apart:
            axis, found = self.dims.index(self.factor), []
            for start, half in self._pieces():
                room = list(x.shape)
                room[axis] = self.pitch - half
                found.append(lax.slice_in_dim(x, start, start + half, axis=axis))
                found += [jnp.zeros(room, x.dtype)] if room[axis] else []
            x = jnp.concatenate(found, axis=axis)
        x = lax.pad(
            x, jnp.zeros((), x.dtype), [(0, 0, 0), (0, self.shape[1] - x.shape[1], 0), (0, 0, 0)]
        )
        behind = zip(self.shape, self.given(interpret), strict=True)
        return lax.pad(x, worst(x.dtype), [(0, size - of, 0) for of, size in behind])

    def unpacked(self, x):
        """Return what `packed` was made of."""
        x = lax.slice(x, (0, 0, 0), self.shape)
        if self.is_apart:
            axis = self.dims.index(self.factor)
            found = [
                lax.slice_in_dim(x, number * self.pitch, number * self.pitch + half, axis=axis)
                for number, (_, half) in enumerate(self._pieces())
            ]
            x = jnp.concatenate(found, axis=axis)
        return lax.slice(x, (0, 0, 0), self.extents)

    def _pieces(self):
        """Yield start and size of all halves of parts."""
        for part in range(self.parts):
            start = part * sum(self.halves)
            for half in self.halves:
                yield start, half
                start += half


def mask(block, axis, size, first):
    """Let what a block in VMEM has along an axis from a size on be zero; `first`: the first tile
    where it may begin. What memory holds behind an array's end may be NaN, of which a product with
    zero is none."""

    def one(number):
        start = multiple(number * LANES, LANES)
        at = (*(slice(None),) * axis, pl.ds(start, LANES))
        value = block[at]
        number = lax.broadcasted_iota(jnp.int32, value.shape, axis) + start
        block[at] = jnp.where(number < size, value, jnp.zeros_like(value))

    each(block.shape[axis] // LANES, one, first)
