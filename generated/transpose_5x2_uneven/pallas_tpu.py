"""Reshards float32[27, 14] over 10 devices: [{"x"}, {"y"}] -> [{"y"}, {"x"}].

Source: [{"x"}, {"y"}] on <["x"=5, "y"=2]>, shards of 6 x 7.
    d1(x, y)[k0, k1] -> t[x * 6 + k0, y * 7 + k1]
    The last shards are short or empty along dimension 0, padded at the end to 6 x 7.
Target: [{"y"}, {"x"}] on <["x"=5, "y"=2]>, shards of 14 x 3.
    d2(x, y)[k0, k1] -> t[y * 14 + k0, x * 3 + k1]
    The last shards are short or empty along dimension 0, 1, padded at the end to 14 x 3.

Along dimension 0, shards of 6 meet shards of 14: up to 3 of the source for one of the target.
Along dimension 1, shards of 7 meet shards of 3: up to 2 of the source for one of the target.
Bytes of the busiest device: 168 in, 168 out, the least possible; 1232 in all.

    device  before              after
    0       [0, 6) x [0, 7)     [0, 14) x [0, 3)
            receives [6, 12) x [0, 3) from 2, [12, 14) x [0, 3) from 4
    1       [0, 6) x [7, 14)    [14, 27) x [0, 3)
            receives [14, 18) x [0, 3) from 4, [18, 24) x [0, 3) from 6, [24, 27) x [0, 3) from 8
    2       [6, 12) x [0, 7)    [0, 14) x [3, 6)
            receives [0, 6) x [3, 6) from 0, [12, 14) x [3, 6) from 4
    3       [6, 12) x [7, 14)   [14, 27) x [3, 6)
            receives [14, 18) x [3, 6) from 4, [18, 24) x [3, 6) from 6, [24, 27) x [3, 6) from 8
    4       [12, 18) x [0, 7)   [0, 14) x [6, 9)
            receives [0, 6) x [6, 7) from 0, [0, 6) x [7, 9) from 1, [6, 12) x [6, 7) from 2,
            [6, 12) x [7, 9) from 3, [12, 14) x [7, 9) from 5
    5       [12, 18) x [7, 14)  [14, 27) x [6, 9)
            receives [14, 18) x [6, 7) from 4, [18, 24) x [6, 7) from 6, [18, 24) x [7, 9) from 7,
            [24, 27) x [6, 7) from 8, [24, 27) x [7, 9) from 9
    6       [18, 24) x [0, 7)   [0, 14) x [9, 12)
            receives [0, 6) x [9, 12) from 1, [6, 12) x [9, 12) from 3, [12, 14) x [9, 12) from 5
    7       [18, 24) x [7, 14)  [14, 27) x [9, 12)
            receives [14, 18) x [9, 12) from 5, [24, 27) x [9, 12) from 9
    8       [24, 27) x [0, 7)   [0, 14) x [12, 14)
            receives [0, 6) x [12, 14) from 1, [6, 12) x [12, 14) from 3, [12, 14) x [12, 14) from 5
    9       [24, 27) x [7, 14)  [14, 27) x [12, 14)
            receives [14, 18) x [12, 14) from 5, [18, 24) x [12, 14) from 7

Form: windows; chunks of tiles are shifted in VMEM, and put together from a staging area.
On the wire 99.740 times the exact bytes, 20,480 into the busiest device.
HBM reads and writes 123.71 times the least possible.
Where shards lie in memory as XLA lays them out by default: 25.66 times more.
Staging 24,576 bytes of HBM, 139,264 of VMEM.

Made by
    shardwright emit --mesh x=5,y=2 --shape 27x14 --dtype float32 --source '[{"x"}, {"y"}]' --target '[{"y"}, {"x"}]' --name transpose_5x2_uneven
"""

import os

if not __package__:
    raise ImportError("part of a package: above FOLDER, run `python -m FOLDER.NAME.pallas_tpu`")
if __name__ == "__main__":  # on one device more than there are, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=11")

from jax.sharding import PartitionSpec as P

from .._support import absent, require
from .._support.jax_host import OneOrder
from .._support.jax_meshes import Sharded
from .._support.pallas_peers import div, maximum, minimum, rem
from .._support.pallas_pieces import Forms, Peers
from .._support.pallas_windows import Tiling, Windows

require("pallas_tpu", "936fbc8de82eccb1", __name__)

__getattr__ = absent(__name__)
__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (27, 14)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=5, "y"=2]>'
SOURCE = '[{"x"}, {"y"}]'
TARGET = '[{"y"}, {"x"}]'
LOCAL_SOURCE_SHAPE = (6, 7)
LOCAL_TARGET_SHAPE = (14, 3)
SOURCE_IDS = TARGET_IDS = range(10)  # by mesh position
PLAN = "57f815ee237d075e"  # processes that exchange must have the same
SOURCE_AXES = TARGET_AXES = (("x", 5), ("y", 2))
# Every shard padded at its end to the largest: the shapes of the global arrays.
PADDED_SOURCE_SHAPE = (30, 14)
PADDED_TARGET_SHAPE = (28, 15)
WIRE_BYTES = 20480  # that arrive at the busiest device, padding included
COLLECTIVE_ID = 11756


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return div(position, 2), rem(position, 2)


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return rem(position, 2), div(position, 2)


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = div(position, 2) * 6
    lo1 = rem(position, 2) * 7
    return lo0, minimum(lo0 + 6, 27), lo1, lo1 + 7


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = rem(position, 2) * 14
    lo1 = div(position, 2) * 3
    return lo0, minimum(lo0 + 14, 27), lo1, minimum(lo1 + 3, 14)


def tile(a0, a1, b0, b1):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_lo0 = a0 * 6
    target_lo0 = b0 * 14
    source_lo1 = a1 * 7
    target_lo1 = b1 * 3
    return (
        maximum(source_lo0, target_lo0),
        minimum(source_lo0 + 6, minimum(target_lo0 + 14, 27)),
        maximum(source_lo1, target_lo1),
        minimum(source_lo1 + 7, minimum(target_lo1 + 3, 14)),
    )


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    first0 = div(rem(position, 2) * 7, 3)
    first1 = div(div(position, 2) * 3, 7)
    return (
        first0,
        div(minimum(rem(position, 2) * 14 + 14, 27) - 1, 6) + 1 - first0,
        first1,
        div(minimum(div(position, 2) * 3 + 3, 14) - 1, 7) + 1 - first1,
    )


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    first0 = div(div(position, 2) * 3, 7)
    first1 = div(rem(position, 2) * 7, 3)
    return first0, div(minimum(div(position, 2) * 6 + 6, 27) - 1, 14) + 1 - first0, first1, 3


def target_position(b0, b1, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return b1 * 2 + b0


def holder(a0, a1, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0 * 2 + a1


def source_at(i0, i1):
    """Index of the source shard, per dimension, that holds an element of the tensor."""
    return div(i0, 6), div(i1, 7)


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("x", "y"))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("y", "x"))
PEERS = Peers(
    _SOURCE,
    _TARGET,
    Forms(source_shard, target_shard, tile, senders, receivers, target_position, holder),
)
# Tiles start and end anywhere: they travel in chunks, each shifted, into a staging area.
# From there every block of the target shard is put together.
TILING = Tiling(
    unit=(8, 128),  # as memory is tiled
    chunk=(8, 128),  # in whole units, of the widest tile, 3 x 6, or a part of it
    window=(16, 256),  # a unit more where a chunk may begin within one
    blocks=(1, 1),  # ceil(target shard, 3 x 14 / chunk)
    meet=(3, 2),  # source shards that a block meets at most
    chunks=(1, 1),  # ceil(widest tile, 3 x 6 / chunk)
    stage=(16, 384),  # tiles lie as in the target shard, each from a whole unit on,
    step=(8, 128),  # and so much further for each tile before it: no two share a unit
    rolled=(0, 1),  # the dimensions along which chunks are shifted
)
_PROGRAM = Windows(PEERS, (1, 0), TILING, source_at, collective_id=COLLECTIVE_ID)
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
