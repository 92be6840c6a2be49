"""Reshards int32[6] over 6 devices: [{"x"}] -> [{}].

Source: [{"x"}] on <["x"=2, "y"=3]>, shards of 3.
    d1(x, y)[k0] -> t[x * 3 + k0]
Target: [{}] on <["x"=2, "y"=3]>, shards of 6.
    d2(x, y)[k0] -> t[k0]

Along dimension 0, shards of 3 meet shards of 6: 2 of the source for one of the target.
Of the 3 holders of a tile, the one with the receiver's own coordinates along
the axes that do not split the source sends it.
Bytes of the busiest device: 12 in, 12 out, the least possible; 72 in all.

    device  before  after   receives
    0       [0, 3)  [0, 6)  [3, 6) from 3
    1       [0, 3)  [0, 6)  [3, 6) from 4
    2       [0, 3)  [0, 6)  [3, 6) from 5
    3       [3, 6)  [0, 6)  [0, 3) from 0
    4       [3, 6)  [0, 6)  [0, 3) from 1
    5       [3, 6)  [0, 6)  [0, 3) from 2

Form: windows; chunks of tiles are shifted in VMEM, and put together from a staging area.
On the wire 341.333 times the exact bytes, 4,096 into the busiest device.
HBM reads and writes 341.83 times the least possible.
Staging 8,192 bytes of HBM, 81,920 of VMEM.

Made by
    shardwright emit --mesh x=2,y=3 --shape 6 --dtype int32 --source '[{"x"}]' --target '[{}]' --name gather_2x3
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
from .._support.pallas_peers import div, rem
from .._support.pallas_pieces import Forms, Peers
from .._support.pallas_windows import Tiling, Windows

require("pallas_tpu", "936fbc8de82eccb1", __name__)

__getattr__ = absent(__name__)
__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (6,)
DTYPE = "int32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=3]>'
SOURCE = '[{"x"}]'
TARGET = "[{}]"
LOCAL_SOURCE_SHAPE = (3,)
LOCAL_TARGET_SHAPE = (6,)
SOURCE_IDS = TARGET_IDS = range(6)  # by mesh position
PLAN = "1703689f30b879a0"  # processes that exchange must have the same
SOURCE_AXES = TARGET_AXES = (("x", 2), ("y", 3))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 4096  # that arrive at the busiest device, padding included
COLLECTIVE_ID = 20568


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return (div(position, 3),)


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return (0,)


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = div(position, 3) * 3
    return lo0, lo0 + 3


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    return 0, 6


def tile(a0, b0):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_lo0 = a0 * 3
    return source_lo0, source_lo0 + 3


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    return 0, 2


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    return 0, 1


def target_position(b0, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return replica


def holder(a0, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0 * 3 + rem(receiver, 3)


def source_at(i0):
    """Index of the source shard, per dimension, that holds an element of the tensor."""
    return (div(i0, 3),)


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("x"))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P(None))
PEERS = Peers(
    _SOURCE,
    _TARGET,
    Forms(source_shard, target_shard, tile, senders, receivers, target_position, holder),
    replicas=6,
)
# Tiles start and end anywhere: they travel in chunks, each shifted, into a staging area.
# From there every block of the target shard is put together.
TILING = Tiling(
    unit=(1024,),  # as memory is tiled
    chunk=(1024,),  # in whole units, of the widest tile, 3, or a part of it
    window=(2048,),  # a unit more where a chunk may begin within one
    blocks=(1,),  # ceil(target shard, 6 / chunk)
    meet=(2,),  # source shards that a block meets at most
    chunks=(1,),  # ceil(widest tile, 3 / chunk)
    stage=(2048,),  # tiles lie as in the target shard, each from a whole unit on,
    step=(1024,),  # and so much further for each tile before it: no two share a unit
    rolled=(0,),  # the dimensions along which chunks are shifted
)
_PROGRAM = Windows(PEERS, (0,), TILING, source_at, collective_id=COLLECTIVE_ID)
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
