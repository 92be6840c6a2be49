"""Reshards int8[6, 6] over 3 devices: [{"x"}, {}] -> [{}, {"x"}].

Source: [{"x"}, {}] on <["x"=3]>, shards of 2 x 6.
    d1(x)[k0, k1] -> t[x * 2 + k0, k1]
Target: [{}, {"x"}] on <["x"=3]>, shards of 6 x 2.
    d2(x)[k0, k1] -> t[k0, x * 2 + k1]

Along dimension 0, shards of 2 meet shards of 6: 3 of the source for one of the target.
Along dimension 1, shards of 6 meet shards of 2: one of the source for one of the target.
Bytes of the busiest device: 8 in, 8 out, the least possible; 24 in all.

    device  before           after            receives
    0       [0, 2) x [0, 6)  [0, 6) x [0, 2)  [2, 4) x [0, 2) from 1, [4, 6) x [0, 2) from 2
    1       [2, 4) x [0, 6)  [0, 6) x [2, 4)  [0, 2) x [2, 4) from 0, [4, 6) x [2, 4) from 2
    2       [4, 6) x [0, 6)  [0, 6) x [4, 6)  [0, 2) x [4, 6) from 0, [2, 4) x [4, 6) from 1

Form: windows; chunks of tiles are shifted in VMEM, and put together from a staging area.
On the wire 256.000 times the exact bytes, 2,048 into the busiest device.
HBM reads and writes 299.17 times the least possible.
Where shards lie in memory as XLA lays them out by default: 64.00 times more.
Staging 3,072 bytes of HBM, 385,024 of VMEM.

Made by
    shardwright emit --mesh x=3 --shape 6x6 --dtype int8 --source '[{"x"}, {}]' --target '[{}, {"x"}]' --name all_to_all_3
"""

import os

if not __package__:
    raise ImportError("part of a package: above FOLDER, run `python -m FOLDER.NAME.pallas_tpu`")
if __name__ == "__main__":  # on one device more than there are, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

from jax.sharding import PartitionSpec as P

from .._support import absent, require
from .._support.jax_host import OneOrder
from .._support.jax_meshes import Sharded
from .._support.pallas_peers import div
from .._support.pallas_pieces import Forms, Peers
from .._support.pallas_windows import Tiling, Windows

require("pallas_tpu", "936fbc8de82eccb1", __name__)

__getattr__ = absent(__name__)
__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (6, 6)
DTYPE = "int8"
SOURCE_MESH = TARGET_MESH = '<["x"=3]>'
SOURCE = '[{"x"}, {}]'
TARGET = '[{}, {"x"}]'
LOCAL_SOURCE_SHAPE = (2, 6)
LOCAL_TARGET_SHAPE = (6, 2)
SOURCE_IDS = TARGET_IDS = range(3)  # by mesh position
PLAN = "e29b93370d6fcd92"  # processes that exchange must have the same
SOURCE_AXES = TARGET_AXES = (("x", 3),)
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 2048  # that arrive at the busiest device, padding included
COLLECTIVE_ID = 17168


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return position, 0


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return 0, position


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position * 2
    return lo0, lo0 + 2, 0, 6


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo1 = position * 2
    return 0, 6, lo1, lo1 + 2


def tile(a0, a1, b0, b1):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_lo0 = a0 * 2
    target_lo1 = b1 * 2
    return source_lo0, source_lo0 + 2, target_lo1, target_lo1 + 2


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    return 0, 3, 0, 1


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    return 0, 1, 0, 3


def target_position(b0, b1, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return b1


def holder(a0, a1, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0


def source_at(i0, i1):
    """Index of the source shard, per dimension, that holds an element of the tensor."""
    return div(i0, 2), 0


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("x", None))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P(None, "x"))
PEERS = Peers(
    _SOURCE,
    _TARGET,
    Forms(source_shard, target_shard, tile, senders, receivers, target_position, holder),
)
# Tiles start and end anywhere: they travel in chunks, each shifted, into a staging area.
# From there every block of the target shard is put together.
TILING = Tiling(
    unit=(8, 128),  # as memory is tiled
    chunk=(32, 128),  # in whole units, of the widest tile, 2 x 2, or a part of it
    window=(64, 256),  # a unit more where a chunk may begin within one
    blocks=(1, 1),  # ceil(target shard, 2 x 6 / chunk)
    meet=(3, 1),  # source shards that a block meets at most
    chunks=(1, 1),  # ceil(widest tile, 2 x 2 / chunk)
    stage=(8, 384),  # tiles lie as in the target shard, each from a whole unit on,
    step=(0, 128),  # and so much further for each tile before it: no two share a unit
    rolled=(0, 1),  # the dimensions along which chunks are shifted
)
_PROGRAM = Windows(PEERS, (1, 0), TILING, source_at, collective_id=COLLECTIVE_ID)
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
