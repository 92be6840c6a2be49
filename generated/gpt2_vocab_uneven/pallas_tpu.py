"""Reshards float32[50257, 768] over 8 devices: [{"x", "y"}, {}] -> [{"y"}, {"x"}].

Source: [{"x", "y"}, {}] on <["x"=2, "y"=4]>, shards of 6283 x 768.
    d1(x, y)[k0, k1] -> t[x * 25132 + y * 6283 + k0, k1]
    The last shards along dimension 0 are short or empty; they are padded at the end to 6283 x 768.
Target: [{"y"}, {"x"}] on <["x"=2, "y"=4]>, shards of 12565 x 384.
    d2(x, y)[k0, k1] -> t[y * 12565 + k0, x * 384 + k1]
    The last shards along dimension 0 are short or empty; they are padded at the end to 12565 x 384.

Along dimension 0, source shards of 6283 meet target shards of 12565: up to 3 source shards for each
    target shard.
Along dimension 1, source shards of 768 meet target shards of 384: 1 source shard for each target
    shard.
No device receives over 19299840 bytes or sends over 19301376, the least possible.
All devices together receive 135097344.

    device  before                     after
    0       [0, 6283) x [0, 768)       [0, 12565) x [0, 384)
            receives [6283, 12565) x [0, 384) from 1
    1       [6283, 12566) x [0, 768)   [12565, 25130) x [0, 384)
            receives [12566, 18849) x [0, 384) from 2, [18849, 25130) x [0, 384) from 3
    2       [12566, 18849) x [0, 768)  [25130, 37695) x [0, 384)
            receives [25130, 25132) x [0, 384) from 3, [25132, 31415) x [0, 384) from 4,
            [31415, 37695) x [0, 384) from 5
    3       [18849, 25132) x [0, 768)  [37695, 50257) x [0, 384)
            receives [37695, 37698) x [0, 384) from 5, [37698, 43981) x [0, 384) from 6,
            [43981, 50257) x [0, 384) from 7
    4       [25132, 31415) x [0, 768)  [0, 12565) x [384, 768)
            receives [0, 6283) x [384, 768) from 0, [6283, 12565) x [384, 768) from 1
    5       [31415, 37698) x [0, 768)  [12565, 25130) x [384, 768)
            receives [12565, 12566) x [384, 768) from 1, [12566, 18849) x [384, 768) from 2,
            [18849, 25130) x [384, 768) from 3
    6       [37698, 43981) x [0, 768)  [25130, 37695) x [384, 768)
            receives [25130, 25132) x [384, 768) from 3, [25132, 31415) x [384, 768) from 4,
            [31415, 37695) x [384, 768) from 5
    7       [43981, 50257) x [0, 768)  [37695, 50257) x [384, 768)
            receives [37695, 37698) x [384, 768) from 5, [37698, 43981) x [384, 768) from 6

Form: windows; chunks of tiles are shifted in VMEM into a staging area, and assembled from there.
The wire carries 1.001 times the bytes of the tiles.
The busiest device receives 19,329,024 bytes, padding included.
HBM traffic is 1.89 times the least possible.
The staging area has 19,329,024 bytes of HBM; kernels use 4,239,360 of VMEM.

Emitted by
    shardwright emit --mesh x=2,y=4 --shape 50257x768 --dtype float32 --source '[{"x", "y"}, {}]' --target '[{"y"}, {"x"}]' --backends pallas_tpu,triton_gpu,jax_xla --name gpt2_vocab_uneven
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.pallas_tpu` in the folder that contains FOLDER")
if __name__ == "__main__":  # one spare device, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=9")

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

from .._support import require
from .._support.jax_host import OneOrder
from .._support.jax_meshes import Sharded
from .._support.jax_padding import Padding
from .._support.pallas_integers import digits_of, far_apart, is_full, maximum, minimum
from .._support.pallas_peers import div, each, multiple, rem, remote_copy, signal, wait_for
from .._support.pallas_pieces import Forms, Peers
from .._support.pallas_shifts import fill, merge
from .._support.pallas_windows import (
    Chunk,
    Part,
    Tiling,
    Windows,
    cut,
    floor_to,
    in_int32,
    moved_by,
    units_at,
    units_of,
    within,
)

require("pallas_tpu", "24fecbfefb230f2f", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (50257, 768)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=4]>'
SOURCE = '[{"x", "y"}, {}]'
TARGET = '[{"y"}, {"x"}]'
LOCAL_SOURCE_SHAPE = (6283, 768)
LOCAL_TARGET_SHAPE = (12565, 384)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "7f4b2ea0e22afa50"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("x", 2), ("y", 4))
# The shapes of global arrays, every shard padded at its end to the largest.
PADDED_SOURCE_SHAPE = (50264, 768)
PADDED_TARGET_SHAPE = (50260, 768)
WIRE_BYTES = 19329024  # received by the busiest device, padding included
COLLECTIVE_ID = 23736


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return position, 0


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return rem(position, 4), div(position, 4)


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position * 6283
    return lo0, minimum(lo0 + 6283, 50257), 0, 768


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = rem(position, 4) * 12565
    lo1 = div(position, 4) * 384
    return lo0, minimum(lo0 + 12565, 50257), lo1, lo1 + 384


def tile(a0, a1, b0, b1):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_lo0 = a0 * 6283
    target_lo0 = b0 * 12565
    target_lo1 = b1 * 384
    return (
        maximum(source_lo0, target_lo0),
        minimum(source_lo0 + 6283, minimum(target_lo0 + 12565, 50257)),
        target_lo1,
        target_lo1 + 384,
    )


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    first0 = div(rem(position, 4) * 12565, 6283)
    return (
        first0,
        div(minimum(rem(position, 4) * 12565 + 12565, 50257) - 1, 6283) + 1 - first0,
        0,
        1,
    )


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    first0 = div(position * 6283, 12565)
    return first0, div(minimum(position * 6283 + 6283, 50257) - 1, 12565) + 1 - first0, 0, 2


def target_position(b0, b1, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return b1 * 4 + b0


def holder(a0, a1, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0


def source_at(i0, i1):
    """Index of the source shard, per dimension, that holds an element of the tensor."""
    return div(i0, 6283), 0


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P(("x", "y"), None))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("y", "x"))
PEERS = Peers(
    _SOURCE,
    _TARGET,
    Forms(source_shard, target_shard, tile, senders, receivers, target_position, holder),
)


# Tiles start and end anywhere: they travel in chunks, each shifted, into a staging area.
# Every block of the target shard is assembled from there.
TILING = Tiling(
    unit=(8, 128),  # the extents of a memory tile
    chunk=(208, 384),  # whole units that hold the widest tile, 6283 x 384, or a part of it
    window=(216, 384),  # of VMEM: a chunk, plus a unit if the chunk may begin inside one
    blocks=(61, 1),  # ceil(target shard of 12565 x 384 / chunk)
    meet=(2, 1),  # the maximum number of source shards that intersect a block
    chunks=(31, 1),  # ceil(widest tile of 6283 x 384 / chunk)
    stage=(12584, 384),  # tiles are placed as in the target shard, each at a whole unit
    rolled=(0,),  # the dimensions along which chunks are shifted
    more_rows=0,  # memory of fewer rows is tiled differently
)


def _viewed(box):
    """Return the ranges of a tensor box, in kernel order."""
    return [box[2 * axis : 2 * axis + 2] for axis in (0, 1)]


def _staged(receiver, shard, piece, box):
    """Return the offset to subtract from a piece's tensor indices to get its place in the staging
    area of its receiver: there it is placed as in the target shard, starting at a whole unit."""
    whole = target_box(receiver)
    met = senders(receiver)  # one more unit for each earlier piece from these
    return [
        box[0] - floor_to(box[0] - whole[0], 8) - (shard[0] - met[0]) * 8,
        box[2] - floor_to(box[2] - whole[2], 128),
    ]


def _push_kernel(order, x, stage, windows, chunks, sizes, read, sent, received):
    """Push this device's tiles into the staging areas of their receivers, a chunk of each in turn,
    so that all links are busy.

    order: a table of ranks, or None; x, stage: the source shard and the staging area, in HBM;
    windows, chunks: two windows and 6 chunks, in VMEM; sizes: the chunks' sizes, in SMEM; DMA
    semaphores: `read` for each window, `sent` for each chunk, `received` for all arrivals in the
    staging area.
    """
    me, receiver = PEERS.here(order)
    barrier = pltpu.get_barrier_semaphore()

    def tell(number):  # from here on a piece's sender may write to this device
        piece = PEERS.incoming(receiver, me, number)
        pl.when(piece.moves)(lambda: signal(barrier, PEERS.source_rank(piece.peer, order)))

    def hear(number):
        piece = PEERS.outgoing(me, number, order)
        pl.when(piece.moves)(lambda: pl.semaphore_wait(barrier, 1))  # 1 for each piece to send

    each(PEERS.incoming_count(receiver), tell)
    each(PEERS.outgoing_count(me), hear)

    own = [low for low, _ in _viewed(source_box(me))]
    count = PEERS.outgoing_count(me)
    steps, pieces = count * 31, maximum(count, 1)

    def chunk_of(step):
        piece = PEERS.outgoing(me, far_apart(rem(step, pieces), pieces), order)
        ranges, number = _viewed(piece.box), div(step, pieces)
        chunk = cut(ranges, number, TILING.chunks, TILING.chunk)
        sends = piece.moves & (step < steps) & is_full(chunk)
        origin = _staged(piece.peer, source_shard(me), piece.piece, piece.box)
        return in_int32(Chunk(sends, piece.peer, origin, chunk))

    def fetch(turn, units):
        window = within(windows, turn, [size for _, size in units])
        return pltpu.make_async_copy(units_at(x, units), window, read.at[turn])

    def leave(slot):
        held = [sizes[slot * 2 + axis] for axis in range(2)]
        held = [multiple(size, unit) for size, unit in zip(held, TILING.unit, strict=True)]
        wait_for(within(chunks, slot, held, slots=6), sent.at[slot])  # sent by `push`

    def push(slot, chunk):
        units = units_of(chunk.box, chunk.origin, TILING.unit)
        for axis, (_, size) in enumerate(units):
            sizes[slot * 2 + axis] = jnp.int32(size)
        packed = within(chunks, slot, [size for _, size in units], slots=6)
        device = PEERS.target_rank(chunk.receiver, order)
        remote_copy(packed, units_at(stage, units), sent.at[slot], received, device).start()

    def advance(step, found):
        # One chunk (`coming`) is read while the previous one (`now`) is shifted and, once its slot
        # is free, sent. `passed`: the number of chunks sent so far.
        now, passed = found
        coming, slot, turn = chunk_of(step), rem(passed, 6), rem(step + 1, 2)
        next_units = units_of(coming.box, own, TILING.unit)
        pl.when(coming.sends > 0)(lambda: fetch(1 - turn, next_units).start())

        @pl.when(now.sends > 0)
        def shift():
            units = units_of(now.box, own, TILING.unit)
            fetch(turn, units).wait()  # the copy of these units, started in the previous step
            pl.when(passed >= 6)(lambda: leave(slot))
            window = within(windows, turn, TILING.window)
            chunk = within(chunks, slot, TILING.chunk, slots=6)
            fill(window, chunk, moved_by(own, units, now.box), TILING.rolled)
            push(slot, now)

        return coming, passed + now.sends

    def arrive(number):
        piece = PEERS.incoming(receiver, me, number)
        origin = _staged(receiver, piece.shard, piece.piece, piece.box)
        units = units_of(_viewed(piece.box), origin, TILING.unit)
        pl.when(piece.moves)(lambda: wait_for(units_at(stage, units), received))  # all its chunks

    nothing = in_int32(Chunk(0, 0, [0] * 2, [(0, 0)] * 2))
    stages = jnp.int32(steps + 1)  # the last chunk is sent a step after it is read
    _, passed = lax.fori_loop(np.int32(0), stages, advance, (nothing, np.int32(0)))
    each(minimum(passed, 6), leave)
    each(PEERS.incoming_count(receiver), arrive)


def _part_of(step, me, receiver):
    """Return part `step` of the target shard, counted over its blocks, 2 per block."""
    box = _viewed(target_box(receiver))
    block = cut(box, div(step, 2), TILING.blocks, TILING.chunk)
    digits = digits_of(div(step, 1), TILING.meet)
    first, piece = source_at(block[0][0], block[1][0]), rem(step, 1)
    shard = tuple(a + b for a, b in zip(first, digits, strict=True))
    tile = PEERS.tile(shard, target_shard(receiver), piece)
    ends = zip(_viewed(tile), block, strict=True)
    part = [(maximum(a, c), minimum(b, d)) for (a, b), (c, d) in ends]
    comes = (step < 122) & is_full(part)
    here = PEERS.holds(me, shard)
    origin = [low for low, _ in _viewed(source_box(me))]
    origins = zip(origin, _staged(receiver, shard, piece, tile), strict=True)
    origin = [jnp.where(here, jnp.int32(own), jnp.int32(staged)) for own, staged in origins]
    return in_int32(Part(comes, here, origin, part, block))


def _unpack_kernel(order, x, stage, y, windows, read):
    """Assemble a block of the target shard, y, from the tiles that intersect it.

    order: a table of ranks, or None; x, stage: the source shard and the staging area, in HBM;
    two windows in VMEM; read: a DMA semaphore for each.
    """
    me, receiver = PEERS.here(order)
    number = np.int32(0)
    for axis, count in enumerate(TILING.blocks):
        number = number * count + pl.program_id(axis)
    begin = number * 2

    def fetch(turn, part, ref):  # the copy of a part from either array
        units = units_of(part.box, part.origin, TILING.unit)
        places = [low - start for (low, _), (start, _) in zip(part.box, part.block, strict=True)]
        window = within(windows, turn, [size for _, size in units], places)
        return pltpu.make_async_copy(units_at(ref, units), window, read.at[turn])

    def advance(number, now):
        # A part is read (`coming`) while the previous one (`now`) is written to its place. The
        # previous block has started the read of this block's first part.
        coming = _part_of(begin + number, me, receiver)
        turn = rem(begin + number, 2)
        begins = coming.comes * jnp.int32((number > 0) | (begin == 0))
        pl.when(begins & coming.here > 0)(lambda: fetch(turn, coming, x).start())
        pl.when(begins & (1 - coming.here) > 0)(lambda: fetch(turn, coming, stage).start())
        # The copy of these units, started in the previous step.
        pl.when(now.comes & now.here > 0)(lambda: fetch(1 - turn, now, x).wait())
        pl.when(now.comes & (1 - now.here) > 0)(lambda: fetch(1 - turn, now, stage).wait())

        @pl.when(now.comes > 0)
        def put():
            units = units_of(now.box, now.origin, TILING.unit)
            window = within(windows, 1 - turn, TILING.window)
            by = moved_by(now.origin, units, now.block)
            merge(window, y, by, now.box, now.block, TILING.rolled)

        return coming

    y[...] = jnp.zeros(y.shape, y.dtype)
    nothing = [(0, 0)] * 2
    nothing = in_int32(Part(0, 0, [0] * 2, nothing, nothing))
    lax.fori_loop(np.int32(0), jnp.int32(3), advance, nothing)


_PROGRAM = Windows(
    _unpack_kernel,
    PEERS,
    (0, 1),
    TILING,
    _push_kernel,
    collective_id=COLLECTIVE_ID,
)


_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM, padding=Padding)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
