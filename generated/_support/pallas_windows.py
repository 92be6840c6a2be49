"""The windows form: tiles start and end anywhere, but memory is tiled over the last two dimensions,
a vector's by 1,024 elements. A tile travels in chunks through windows in VMEM, which shift each
chunk to its place, into a staging area on its receiver, where it starts at a whole unit. Afterwards
every block of the target shard is assembled from that area."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from .pallas_integers import digits_of, minimum
from .pallas_peers import multiple
from .pallas_program import PallasProgram


class Tiling(NamedTuple):
    """How tiles are cut, by dimension in kernel order. `unit`: memory offsets are multiples of it;
    `chunk`: the extents shifted at a time; `window`: the whole units that a chunk reaches into;
    `blocks`: the number of chunk-sized blocks in the target shard; `meet`: the number of source
    shards that intersect a block, in tensor order; `chunks`: the number in the largest tile;
    `stage`: the staging area; `step`: the extra offset of a tile there, compared to the target
    shard, for each earlier tile; `rolled`: the dimensions along which anything is shifted;
    `more_rows`: whether there are so few rows that memory tiles would be smaller than in
    windows."""

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
    """The send of one step. `sends`: whether there is one; `start`: subtracted from tensor indices
    to get indices in the staging area; `box`: the part of the tensor that is sent."""

    sends: int
    receiver: int
    start: list
    box: list


class Part(NamedTuple):
    """A step's contribution to a block. `comes`: whether there is one; `here`: whether it is local,
    not from the staging area; `start` as in `Chunk`; `box`, `block`: the boxes of both."""

    comes: int
    here: int
    start: list
    box: list
    block: list


class Windows(PallasProgram):
    """`unpack_kernel`, and `push_kernel` if anything is sent: each takes a table of ranks, if any,
    arrays in HBM, windows in VMEM, and semaphores."""

    form = "windows"
    leaves_padding = False
    slots = 6  # most chunks in flight

    def __init__(self, unpack_kernel, peers, view, tiling, push_kernel=None, **settings):
        super().__init__(peers, view, **settings)
        self.tiling = tiling
        self.push_kernel, self.unpack_kernel = push_kernel, unpack_kernel

    def moved(self, x, call):
        """Return the target shard with zero padding."""
        x, tiling = lax.transpose(x, self.view), self.tiling
        if tiling.more_rows:
            x = jnp.pad(x, [(0, tiling.more_rows * (k == x.ndim - 2)) for k in range(x.ndim)])
        if call.interpret:
            # TPU memory is allocated in whole units; the interpreter's memory ends with the shard.
            pairs = zip(x.shape, tiling.unit, strict=True)
            x = jnp.pad(x, [(0, -size % unit) for size, unit in pairs])
        windows, pair = (
            pltpu.VMEM(several(2, tiling.window), x.dtype),
            pltpu.SemaphoreType.DMA((2,)),
        )
        stage = x  # never read without sends
        if self.peers.sends:
            chunks = pltpu.VMEM(several(self.slots, tiling.chunk), x.dtype)
            sizes = pltpu.SMEM((self.slots * len(self.view),), jnp.int32)
            sent, received = pltpu.SemaphoreType.DMA((self.slots,)), pltpu.SemaphoreType.DMA
            scratch = [windows, chunks, sizes, pair, sent, received]
            stage = call.pushed(call.seen(self.push_kernel), x, tiling.stage, scratch)
        # Each block prefetches the data of the next one.
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
    """Return the shape of several windows or chunks; a vector's are consecutive."""
    return (count * extents[0],) if len(extents) == 1 else (count, *extents)


def cut(box, number, sizes, extents):
    """Cut a box into boxes of these extents, `sizes` along each dimension, and return box
    `number`."""
    parts = zip(box, digits_of(number, sizes), extents, strict=True)
    starts = [(low + digit * step, high, step) for (low, high), digit, step in parts]
    return [(start, minimum(start + step, high)) for start, high, step in starts]


def units_of(box, origin, unit):
    """Return the whole units that cover a box, (start, size) relative to an origin in the
    tensor."""
    triples = zip(box, origin, unit, strict=True)
    return [covering(low, high, start, one) for (low, high), start, one in triples]


def moved_by(origin, units, box):
    """Return the shift from the start of units to the start of a box."""
    return [a + first - low for a, (first, _), (low, _) in zip(origin, units, box, strict=True)]


def covering(low, high, start, unit):
    """Return the start and size of the whole units, counted from `start`, that cover a range."""
    first, end = floor_to(low - start, unit), floor_to(high - start + unit - 1, unit)
    return first, multiple(end - first, unit)


def floor_to(offset, unit):
    """Round an offset down to whole units, which are powers of two."""
    return multiple(offset & -unit, unit) if unit > 1 else offset


def units_at(ref, units):
    """Return the slice of an array covered by units (start, size)."""
    return ref.at[tuple(pl.ds(*unit) for unit in units)]


def within(ref, slot, sizes, places=(), slots=2):
    """Return a slice of these sizes of a window or chunk in VMEM, from its start or from a place
    along untiled dimensions."""
    if len(sizes) == 1:
        return ref.at[pl.ds(multiple(slot * (ref.shape[0] // slots), 1024), sizes[0])]
    places = places[:-2] or [0] * (len(sizes) - 2)
    leading = [pl.ds(*part) for part in zip(places, sizes[:-2], strict=True)]
    return ref.at[(slot, *leading, pl.ds(0, sizes[-2]), pl.ds(0, sizes[-1]))]


def in_int32(values):
    """Return a structure of integers in 32 bits."""
    return jax.tree.map(jnp.int32, values)
