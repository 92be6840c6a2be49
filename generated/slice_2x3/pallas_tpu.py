"""Reshards int32[6] over 6 devices: [{}] -> [{"y"}].

Source: [{}] on <["x"=2, "y"=3]>, shards of 6.
    d1(x, y)[k0] -> t[k0]
Target: [{"y"}] on <["x"=2, "y"=3]>, shards of 2.
    d2(x, y)[k0] -> t[y * 2 + k0]

Along dimension 0, source shards of 6 meet target shards of 2: 1 source shard for each target shard.
Of the 6 holders of a tile, the sender is the one whose coordinates along the axes that do not split
    the source equal the receiver's.
No device receives over 0 bytes or sends over 0, the least possible.
All devices together receive 0.

    device  before  after   receives
    0       [0, 6)  [0, 2)  nothing
    1       [0, 6)  [2, 4)  nothing
    2       [0, 6)  [4, 6)  nothing
    3       [0, 6)  [0, 2)  nothing
    4       [0, 6)  [2, 4)  nothing
    5       [0, 6)  [4, 6)  nothing

Form: windows; chunks of tiles are shifted in VMEM into a staging area, and assembled from there.
The wire carries 1.000 times the bytes of the tiles.
The busiest device receives 0 bytes, padding included.
HBM traffic is 256.50 times the least possible.
The staging area has 0 bytes of HBM; kernels use 81,920 of VMEM.

Emitted by
    shardwright emit --mesh x=2,y=3 --shape 6 --dtype int32 --source '[{}]' --target '[{"y"}]' --name slice_2x3
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.pallas_tpu` in the folder that contains FOLDER")
if __name__ == "__main__":  # one spare device, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=7")

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

from .._support import require
from .._support.jax_host import OneOrder
from .._support.jax_meshes import Sharded
from .._support.pallas_integers import digits_of, is_full, maximum, minimum
from .._support.pallas_peers import div, rem
from .._support.pallas_pieces import Forms, Peers
from .._support.pallas_shifts import merge
from .._support.pallas_windows import (
    Part,
    Tiling,
    Windows,
    cut,
    in_int32,
    moved_by,
    units_at,
    units_of,
    within,
)

require("pallas_tpu", "24fecbfefb230f2f", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (6,)
DTYPE = "int32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=3]>'
SOURCE = "[{}]"
TARGET = '[{"y"}]'
LOCAL_SOURCE_SHAPE = (6,)
LOCAL_TARGET_SHAPE = (2,)
SOURCE_IDS = TARGET_IDS = range(6)  # by mesh position
PLAN = "5fc80ef08e5c4dcc"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("x", 2), ("y", 3))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 0  # received by the busiest device, padding included


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return (0,)


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return (rem(position, 3),)


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    return 0, 6


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = rem(position, 3) * 2
    return lo0, lo0 + 2


def tile(a0, b0):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    target_lo0 = b0 * 2
    return target_lo0, target_lo0 + 2


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    return 0, 1


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    return 0, 3


def target_position(b0, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return replica * 3 + b0


def holder(a0, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return receiver


def source_at(i0):
    """Index of the source shard, per dimension, that holds an element of the tensor."""
    return (0,)


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P(None))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("y"))
PEERS = Peers(
    _SOURCE,
    _TARGET,
    Forms(source_shard, target_shard, tile, senders, receivers, target_position, holder),
    replicas=2,
    sends=False,
)


# Tiles start and end anywhere: they travel in chunks, each shifted, into a staging area.
# Every block of the target shard is assembled from there.
TILING = Tiling(
    unit=(1024,),  # the extents of a memory tile
    chunk=(1024,),  # whole units that hold the widest tile, 2, or a part of it
    window=(2048,),  # of VMEM: a chunk, plus a unit if the chunk may begin inside one
    blocks=(1,),  # ceil(target shard of 2 / chunk)
    meet=(1,),  # the maximum number of source shards that intersect a block
    rolled=(0,),  # the dimensions along which chunks are shifted
    more_rows=0,  # memory of fewer rows is tiled differently
)


def _viewed(box):
    """Return the ranges of a tensor box, in kernel order."""
    return [box[2 * axis : 2 * axis + 2] for axis in (0,)]


def _part_of(step, me, receiver):
    """Return part `step` of the target shard, counted over its blocks, 1 per block."""
    box = _viewed(target_box(receiver))
    block = cut(box, div(step, 1), TILING.blocks, TILING.chunk)
    digits = digits_of(div(step, 1), TILING.meet)
    first, piece = source_at(block[0][0]), rem(step, 1)
    shard = tuple(a + b for a, b in zip(first, digits, strict=True))
    tile = PEERS.tile(shard, target_shard(receiver), piece)
    ends = zip(_viewed(tile), block, strict=True)
    part = [(maximum(a, c), minimum(b, d)) for (a, b), (c, d) in ends]
    comes = (step < 1) & is_full(part)
    here = PEERS.holds(me, shard)
    origin = [low for low, _ in _viewed(source_box(me))]
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
    begin = number * 1

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
    nothing = [(0, 0)] * 1
    nothing = in_int32(Part(0, 0, [0] * 1, nothing, nothing))
    lax.fori_loop(np.int32(0), jnp.int32(2), advance, nothing)


_PROGRAM = Windows(
    _unpack_kernel,
    PEERS,
    (0,),
    TILING,
)


_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
