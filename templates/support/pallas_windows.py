"""The windows form: tiles start and end anywhere, but memory is tiled over the last two dimensions,
that of a vector by 1,024 elements. A tile travels in chunks through windows in VMEM, where each is
shifted to its place, into a staging area of its receiver; there it starts at a whole unit.
Afterwards every block of the target shard is put together from it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from .pallas_peers import (
    digits_of,
    minimum,
    multiple,
)
from .pallas_program import PallasProgram


class Tiling(NamedTuple):
    """How tiles are cut, a dimension, in the order of kernels. `unit`: what starts in memory are
    multiples of; `chunk`: the extents of what is shifted at a time; `window`: of the whole units
    that a chunk reaches into; `blocks`: of the target shard, of the extents of a chunk; `meet`: how
    many source shards meet one, in the order of the tensor; `chunks`: of the largest tile; `stage`:
    the staging area; `step`: by how much a tile stands further in it than in the target shard for
    each tile before it; `rolled`: the dimensions along which anything is shifted; `more_rows`: so
    few rows would be kept in smaller tiles than windows have."""

    unit: tuple[int, ...]
    chunk: tuple[int, ...]
    window: tuple[int, ...]
    blocks: tuple[int, ...]
    meet: tuple[int, ...]
    chunks: tuple[int, ...] = ()
    stage: tuple[int, ...] = ()
    step: tuple[int, ...] = ()
    rolled: tuple[int, ...] = ()
    more_rows: int = 0


class Chunk(NamedTuple):
    """What to send at a step: whether there is anything, and to whom; `start`: what is taken off
    tensor indices for its place in the staging area; its box."""

    sends: int
    receiver: int
    start: list
    box: list


class Part(NamedTuple):
    """What a step brings to a block: whether anything; if from here, else from the staging area;
    `start` as of a chunk; its box; that of the block."""

    comes: int
    here: int
    start: list
    box: list
    block: list


class Windows(PallasProgram):
    """`unpack_kernel`, and `push_kernel` where anything is sent: of a table of ranks, if any, of
    arrays in HBM, windows in VMEM, and semaphores."""

    form = "windows"
    leaves_padding = False
    slots = 6  # chunks that are on their way at a time, at most

    def __init__(self, unpack_kernel, peers, view, tiling, push_kernel=None, **settings):
        super().__init__(peers, view, **settings)
        self.tiling = tiling
        self.push_kernel, self.unpack_kernel = push_kernel, unpack_kernel

    def moved(self, x, call):
        """Return the target shard, its padding zero."""
        x, tiling = lax.transpose(x, self.view), self.tiling
        if tiling.more_rows:
            x = jnp.pad(x, [(0, tiling.more_rows * (k == x.ndim - 2)) for k in range(x.ndim)])
        if call.interpret:
            # Memory has room up to whole units at the ends of a shard; the interpreter's has not.
            pairs = zip(x.shape, tiling.unit, strict=True)
            x = jnp.pad(x, [(0, -size % unit) for size, unit in pairs])
        windows, pair = (
            pltpu.VMEM(several(2, tiling.window), x.dtype),
            pltpu.SemaphoreType.DMA((2,)),
        )
        stage = x  # where nothing is sent no part comes from it
        if self.peers.sends:
            chunks = pltpu.VMEM(several(self.slots, tiling.chunk), x.dtype)
            sizes = pltpu.SMEM((self.slots * len(self.view),), jnp.int32)
            sent, received = pltpu.SemaphoreType.DMA((self.slots,)), pltpu.SemaphoreType.DMA
            scratch = [windows, chunks, sizes, pair, sent, received]
            stage = call.pushed(call.seen(self.push_kernel), x, tiling.stage, scratch)
        # One block after another: each starts to read what the next one needs.
        order = ("arbitrary",) * len(tiling.blocks)
        y = call.run(
            call.seen(self.unpack_kernel),
            x,
            stage,
            grid=tiling.blocks,
            out_shape=jax.ShapeDtypeStruct(self.target_shape, x.dtype),
            out_specs=pl.BlockSpec(tiling.chunk, lambda *block: block),
            scratch_shapes=[windows, pair],
            compiler_params=pltpu.CompilerParams(dimension_semantics=order),
        )
        return lax.transpose(y, self.inverse)


def several(count, extents):
    """Return the shape of windows or chunks; those of a vector lie one after the other."""
    return (count * extents[0],) if len(extents) == 1 else (count, *extents)


def cut(box, number, sizes, extents):
    """Return the box of a number among those of these extents, so many along each dimension, into
    which a box is cut."""
    parts = zip(box, digits_of(number, sizes), extents, strict=True)
    starts = [(low + digit * step, high, step) for (low, high), digit, step in parts]
    return [(start, minimum(start + step, high)) for start, high, step in starts]


def units_of(box, origin, unit):
    """Return the whole units that cover a box, (start, size) from an origin in the tensor."""
    triples = zip(box, origin, unit, strict=True)
    return [covering(low, high, start, one) for (low, high), start, one in triples]


def moved_by(origin, units, box):
    """Return by how much what is at the start of units is to move to that of a box."""
    return [a + first - low for a, (first, _), (low, _) in zip(origin, units, box, strict=True)]


def covering(low, high, start, unit):
    """Return the whole units from `start` on that cover a range: where they begin, and their
    size."""
    first, end = floor_to(low - start, unit), floor_to(high - start + unit - 1, unit)
    return first, multiple(end - first, unit)


def floor_to(offset, unit):
    """Return an offset rounded down to whole units, which are powers of two."""
    return multiple(offset & -unit, unit) if unit > 1 else offset


def units_at(ref, units):
    """Return what units (start, size) take of an array."""
    return ref.at[tuple(pl.ds(*unit) for unit in units)]


def within(ref, slot, sizes, places=(), slots=2):
    """Return a part of these sizes of one of the windows or chunks in VMEM: from its start; along
    dimensions that are not tiled, from a place."""
    if len(sizes) == 1:
        return ref.at[pl.ds(multiple(slot * (ref.shape[0] // slots), 1024), sizes[0])]
    places = places[:-2] or [0] * (len(sizes) - 2)
    leading = [pl.ds(*part) for part in zip(places, sizes[:-2], strict=True)]
    return ref.at[(slot, *leading, pl.ds(0, sizes[-2]), pl.ds(0, sizes[-1]))]


def in_int32(values):
    """Return all integers of a structure in 32 bits."""
    return jax.tree.map(jnp.int32, values)
