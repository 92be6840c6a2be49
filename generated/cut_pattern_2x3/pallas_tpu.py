"""Reshards float32[12, 12] over 6 devices: [{"x"}, {"y"}] -> [{"y"}, {"x"}].

Source: [{"x"}, {"y"}] on <["x"=2, "y"=3]>, shards of 6 x 4.
    d1(x, y)[k0, k1] -> t[x * 6 + k0, y * 4 + k1]
Target: [{"y"}, {"x"}] on <["x"=2, "y"=3]>, shards of 4 x 6.
    d2(x, y)[k0, k1] -> t[y * 4 + k0, x * 6 + k1]

Along dimension 0, shards of 6 meet shards of 4: up to 2 of the source for one of the target.
Along dimension 1, shards of 4 meet shards of 6: up to 2 of the source for one of the target.
Bytes of the busiest device: 96 in, 96 out, the least possible; 416 in all.

    device  before             after              receives
    0       [0, 6) x [0, 4)    [0, 4) x [0, 6)    [0, 4) x [4, 6) from 1
    1       [0, 6) x [4, 8)    [4, 8) x [0, 6)    [4, 6) x [0, 4) from 0, [6, 8) x [0, 4) from 3,
                                                  [6, 8) x [4, 6) from 4
    2       [0, 6) x [8, 12)   [8, 12) x [0, 6)   [8, 12) x [0, 4) from 3, [8, 12) x [4, 6) from 4
    3       [6, 12) x [0, 4)   [0, 4) x [6, 12)   [0, 4) x [6, 8) from 1, [0, 4) x [8, 12) from 2
    4       [6, 12) x [4, 8)   [4, 8) x [6, 12)   [4, 6) x [6, 8) from 1, [4, 6) x [8, 12) from 2,
                                                  [6, 8) x [8, 12) from 5
    5       [6, 12) x [8, 12)  [8, 12) x [6, 12)  [8, 12) x [6, 8) from 4

Form: windows; chunks of tiles are shifted in VMEM, and put together from a staging area.
On the wire 118.154 times the exact bytes, 12,288 into the busiest device.
HBM reads and writes 142.72 times the least possible.
Where shards lie in memory as XLA lays them out by default: 32.00 times more.
Staging 16,384 bytes of HBM, 139,264 of VMEM.

Made by
    shardwright emit --mesh x=2,y=3 --shape 12x12 --dtype float32 --source '[{"x"}, {"y"}]' --target '[{"y"}, {"x"}]' --name cut_pattern_2x3
"""

import os

if not __package__:
    raise ImportError("part of a package: above FOLDER, run `python -m FOLDER.NAME.pallas_tpu`")
if __name__ == "__main__":  # on one device more than there are, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=7")

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

SHAPE = (12, 12)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=3]>'
SOURCE = '[{"x"}, {"y"}]'
TARGET = '[{"y"}, {"x"}]'
LOCAL_SOURCE_SHAPE = (6, 4)
LOCAL_TARGET_SHAPE = (4, 6)
SOURCE_IDS = TARGET_IDS = range(6)  # by mesh position
PLAN = "b75149f02b2d6647"  # processes that exchange must have the same
SOURCE_AXES = TARGET_AXES = (("x", 2), ("y", 3))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 12288  # that arrive at the busiest device, padding included
COLLECTIVE_ID = 13456


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return div(position, 3), rem(position, 3)


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return rem(position, 3), div(position, 3)


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = div(position, 3) * 6
    lo1 = rem(position, 3) * 4
    return lo0, lo0 + 6, lo1, lo1 + 4


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = rem(position, 3) * 4
    lo1 = div(position, 3) * 6
    return lo0, lo0 + 4, lo1, lo1 + 6


def tile(a0, a1, b0, b1):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_lo0 = a0 * 6
    target_lo0 = b0 * 4
    source_lo1 = a1 * 4
    target_lo1 = b1 * 6
    return (
        maximum(source_lo0, target_lo0),
        minimum(source_lo0 + 6, target_lo0 + 4),
        maximum(source_lo1, target_lo1),
        minimum(source_lo1 + 4, target_lo1 + 6),
    )


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    first0 = div(rem(position, 3) * 2, 3)
    first1 = div(div(position, 3) * 3, 2)
    return (
        first0,
        div(rem(position, 3) * 4 + 3, 6) + 1 - first0,
        first1,
        div(div(position, 3) * 6 + 5, 4) + 1 - first1,
    )


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    first0 = div(div(position, 3) * 3, 2)
    first1 = div(rem(position, 3) * 2, 3)
    return (
        first0,
        div(div(position, 3) * 6 + 5, 4) + 1 - first0,
        first1,
        div(rem(position, 3) * 4 + 3, 6) + 1 - first1,
    )


def target_position(b0, b1, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return b1 * 3 + b0


def holder(a0, a1, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0 * 3 + a1


def source_at(i0, i1):
    """Index of the source shard, per dimension, that holds an element of the tensor."""
    return div(i0, 6), div(i1, 4)


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
    chunk=(8, 128),  # in whole units, of the widest tile, 4 x 4, or a part of it
    window=(16, 256),  # a unit more where a chunk may begin within one
    blocks=(1, 1),  # ceil(target shard, 4 x 6 / chunk)
    meet=(2, 2),  # source shards that a block meets at most
    chunks=(1, 1),  # ceil(widest tile, 4 x 4 / chunk)
    stage=(16, 256),  # tiles lie as in the target shard, each from a whole unit on,
    step=(8, 128),  # and so much further for each tile before it: no two share a unit
    rolled=(0, 1),  # the dimensions along which chunks are shifted
)
_PROGRAM = Windows(PEERS, (0, 1), TILING, source_at, collective_id=COLLECTIVE_ID)
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
