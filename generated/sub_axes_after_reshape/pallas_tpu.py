"""Reshards int8[64, 96] over 8 devices: [{"x"}, {}] -> [{"x":(1)2}, {"x":(2)2, "y"}].

Source: [{"x"}, {}] on <["x"=4, "y"=2]>, shards of 16 x 96.
    d1(x, y)[k0, k1] -> t[x * 16 + k0, k1]
Target: [{"x":(1)2}, {"x":(2)2, "y"}] on <["x"=4, "y"=2]>, shards of 32 x 24.
    d2(x, y)[k0, k1] -> t[x // 2 * 32 + k0, x % 2 * 48 + y * 24 + k1]

Along dimension 0, shards of 16 meet shards of 32: 2 of the source for one of the target.
Along dimension 1, shards of 96 meet shards of 24: one of the source for one of the target.
Of the 2 holders of a tile, the one with the receiver's own coordinates along
the axes that do not split the source sends it.
Bytes of the busiest device: 384 in, 384 out, the least possible; 3072 in all.

    device  before              after                receives
    0       [0, 16) x [0, 96)   [0, 32) x [0, 24)    [16, 32) x [0, 24) from 2
    1       [0, 16) x [0, 96)   [0, 32) x [24, 48)   [16, 32) x [24, 48) from 3
    2       [16, 32) x [0, 96)  [0, 32) x [48, 72)   [0, 16) x [48, 72) from 0
    3       [16, 32) x [0, 96)  [0, 32) x [72, 96)   [0, 16) x [72, 96) from 1
    4       [32, 48) x [0, 96)  [32, 64) x [0, 24)   [48, 64) x [0, 24) from 6
    5       [32, 48) x [0, 96)  [32, 64) x [24, 48)  [48, 64) x [24, 48) from 7
    6       [48, 64) x [0, 96)  [32, 64) x [48, 72)  [32, 48) x [48, 72) from 4
    7       [48, 64) x [0, 96)  [32, 64) x [72, 96)  [32, 48) x [72, 96) from 5

Form: windows; chunks of tiles are shifted in VMEM, and put together from a staging area.
On the wire 5.333 times the exact bytes, 2,048 into the busiest device.
HBM reads and writes 5.83 times the least possible.
Where shards lie in memory as XLA lays them out by default: 4.67 times more.
Staging 5,120 bytes of HBM, 385,024 of VMEM.

Made by
    shardwright emit --mesh x=4,y=2 --shape 64x96 --dtype int8 --source '[{"x"}, {}]' --target '[{"x":(1)2}, {"x":(2)2, "y"}]' --name sub_axes_after_reshape
"""

import os

if not __package__:
    raise ImportError("part of a package: above FOLDER, run `python -m FOLDER.NAME.pallas_tpu`")
if __name__ == "__main__":  # on one device more than there are, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=9")

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

SHAPE = (64, 96)
DTYPE = "int8"
SOURCE_MESH = TARGET_MESH = '<["x"=4, "y"=2]>'
SOURCE = '[{"x"}, {}]'
TARGET = '[{"x":(1)2}, {"x":(2)2, "y"}]'
LOCAL_SOURCE_SHAPE = (16, 96)
LOCAL_TARGET_SHAPE = (32, 24)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "efe0dbc02bfb97fd"  # processes that exchange must have the same
# The meshes, their axes refined into the sub-axes in use.
SOURCE_AXES = (("x", 4), ("y", 2))
TARGET_AXES = (("x:(1)2", 2), ("x:(2)2", 2), ("y", 2))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 2048  # that arrive at the busiest device, padding included
COLLECTIVE_ID = 1848


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return div(position, 2), 0


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return div(position, 4), rem(position, 4)


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = div(position, 2) * 16
    return lo0, lo0 + 16, 0, 96


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = div(position, 4) * 32
    lo1 = rem(position, 4) * 24
    return lo0, lo0 + 32, lo1, lo1 + 24


def tile(a0, a1, b0, b1):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_lo0 = a0 * 16
    target_lo0 = b0 * 32
    target_lo1 = b1 * 24
    return (
        maximum(source_lo0, target_lo0),
        minimum(source_lo0 + 16, target_lo0 + 32),
        target_lo1,
        target_lo1 + 24,
    )


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    first0 = div(position, 4) * 2
    return first0, 2, 0, 1


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    first0 = div(position, 4)
    return first0, 1, 0, 4


def target_position(b0, b1, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return b0 * 4 + b1


def holder(a0, a1, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0 * 2 + rem(receiver, 2)


def source_at(i0, i1):
    """Index of the source shard, per dimension, that holds an element of the tensor."""
    return div(i0, 16), 0


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("x", None))
_TARGET = Sharded(
    TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("x:(1)2", ("x:(2)2", "y"))
)
PEERS = Peers(
    _SOURCE,
    _TARGET,
    Forms(source_shard, target_shard, tile, senders, receivers, target_position, holder),
)
# Tiles start and end anywhere: they travel in chunks, each shifted, into a staging area.
# From there every block of the target shard is put together.
TILING = Tiling(
    unit=(8, 128),  # as memory is tiled
    chunk=(32, 128),  # in whole units, of the widest tile, 16 x 24, or a part of it
    window=(64, 256),  # a unit more where a chunk may begin within one
    blocks=(1, 1),  # ceil(target shard, 32 x 24 / chunk)
    meet=(2, 1),  # source shards that a block meets at most
    chunks=(1, 1),  # ceil(widest tile, 16 x 24 / chunk)
    stage=(40, 128),  # tiles lie as in the target shard, each from a whole unit on,
    step=(0, 0),  # and so much further for each tile before it: no two share a unit
    rolled=(0, 1),  # the dimensions along which chunks are shifted
)
_PROGRAM = Windows(PEERS, (0, 1), TILING, source_at, collective_id=COLLECTIVE_ID)
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
