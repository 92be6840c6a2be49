"""The windows form: tiles may start and end at any element, although memory is tiled over the last
two dimensions (a vector in units of 1,024 elements). The sender reads a tile in chunks into windows
in VMEM, shifts each chunk there, and writes it to a staging area on the receiver, in which the tile
starts on a unit boundary. The receiver then assembles every block of the target shard from that
area and its own source shard."""

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
    """The division of tiles into chunks; fields are by dimension in kernel order. `unit`: the
    number of elements of which memory offsets are multiples; `chunk`: the extents of a chunk,
    which is shifted as a whole; `window`: the extents of the whole units that hold a chunk;
    `blocks`: the number of chunk-sized blocks in the target shard; `meet`: the largest number of
    source shards that a block overlaps, in tensor order; `chunks`: the number of chunks in the
    largest tile; `stage`: the extents of the staging area; `rolled`: the dimensions along which
    some chunk is shifted; `more_rows`: the number of padding rows of a source shard with so few
    rows that its memory tiles would be smaller than those of windows."""

    unit: tuple[int, ...]
    chunk: tuple[int, ...]
    window: tuple[int, ...]
    blocks: tuple[int, ...]
    meet: tuple[int, ...]
    chunks: tuple[int, ...] = ()
    stage: tuple[int, ...] = ()
    rolled: tuple[int, ...] = ()
    more_rows: int = 0


class Chunk(NamedTuple):
    """The chunk that a device sends in one step. `sends`: whether the device sends in this step;
    `receiver`: the receiving device; `origin`: the tensor index at the start of the staging area;
    `box`: the part of the tensor to send."""

    sends: int
    receiver: int
    origin: list
    box: list


class Part(NamedTuple):
    """The part that a step contributes to a block. `comes`: whether there is a part; `here`:
    whether it is in the source shard of this device or else in the staging area; `origin`: the
    tensor index at the start of this array; `box`, `block`: the boxes of the part and of the
    block."""

    comes: int
    here: int
    origin: list
    box: list
    block: list


class Windows(PallasProgram):
    """A reshard in the windows form. `push_kernel`: sends chunks, None if no device sends;
    `unpack_kernel`: assembles blocks. The kernels are functions of a table of ranks or None, arrays
    in HBM, windows in VMEM, and semaphores."""

    form = "windows"
    leaves_padding = False
    slots = 6  # the maximum number of chunks in flight

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
        windows = pltpu.VMEM(several(2, tiling.window), x.dtype)
        pair = pltpu.SemaphoreType.DMA((2,))
        stage = x  # a placeholder, never read if no device sends
        if self.peers.sends:
            chunks = pltpu.VMEM(several(self.slots, tiling.chunk), x.dtype)
            sizes = pltpu.SMEM((self.slots * len(self.view),), jnp.int32)
            sent, received = pltpu.SemaphoreType.DMA((self.slots,)), pltpu.SemaphoreType.DMA
            scratch = [windows, chunks, sizes, pair, sent, received]
            stage = call.pushed(call.seen(self.push_kernel), x, tiling.stage, scratch)
        # Blocks run in order, since each prefetches the first part of the next.
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
    """Return the shape of an array of `count` windows or chunks; if they are vectors, the array is
    a vector too."""
    return (count * extents[0],) if len(extents) == 1 else (count, *extents)


def cut(box, number, sizes, extents):
    """Return box `number` of the boxes of these extents into which a box is cut; `sizes`: the
    number of boxes along each dimension."""
    parts = zip(box, digits_of(number, sizes), extents, strict=True)
    starts = [(low + digit * step, high, step) for (low, high), digit, step in parts]
    return [(start, minimum(start + step, high)) for start, high, step in starts]


def units_of(box, origin, unit):
    """Return the whole units that cover a box, per dimension as (start, size) relative to `origin`,
    an index in the tensor."""
    triples = zip(box, origin, unit, strict=True)
    return [covering(low, high, start, one) for (low, high), start, one in triples]


def moved_by(origin, units, box):
    """Return the start of units relative to the start of a box, by dimension."""
    return [a + first - low for a, (first, _), (low, _) in zip(origin, units, box, strict=True)]


def covering(low, high, start, unit):
    """Return the start and size of the whole units, counted from `start`, that cover a range."""
    first, end = floor_to(low - start, unit), floor_to(high - start + unit - 1, unit)
    return first, multiple(end - first, unit)


def floor_to(offset, unit):
    """Round an offset down to a multiple of `unit`, a power of two."""
    return multiple(offset & -unit, unit) if unit > 1 else offset


def units_at(ref, units):
    """Return the slice of an array covered by units (start, size)."""
    return ref.at[tuple(pl.ds(*unit) for unit in units)]


def within(ref, slot, sizes, places=(), slots=2):
    """Return a slice of these sizes of window or chunk `slot` in VMEM. It starts at `places` along
    untiled dimensions, and at 0 along the last two."""
    if len(sizes) == 1:
        return ref.at[pl.ds(multiple(slot * (ref.shape[0] // slots), 1024), sizes[0])]
    places = places[:-2] or [0] * (len(sizes) - 2)
    leading = [pl.ds(*part) for part in zip(places, sizes[:-2], strict=True)]
    return ref.at[(slot, *leading, pl.ds(0, sizes[-2]), pl.ds(0, sizes[-1]))]


def in_int32(values):
    """Return a pytree of integers as 32-bit integers."""
    return jax.tree.map(jnp.int32, values)
