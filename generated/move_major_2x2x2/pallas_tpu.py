"""Reshards int8[4, 4] over 8 devices: [{"x"}, {"y", "z"}] -> [{"x", "y"}, {"z"}].

Source: [{"x"}, {"y", "z"}] on <["x"=2, "y"=2, "z"=2]>, shards of 2 x 1.
    d1(x, y, z)[k0, k1] -> t[x * 2 + k0, y * 2 + k1 + z]
Target: [{"x", "y"}, {"z"}] on <["x"=2, "y"=2, "z"=2]>, shards of 1 x 2.
    d2(x, y, z)[k0, k1] -> t[x * 2 + k0 + y, z * 2 + k1]

Along dimension 0, shards of 2 meet shards of 1: one of the source for one of the target.
Along dimension 1, shards of 1 meet shards of 2: 2 of the source for one of the target.
Bytes of the busiest device: 2 in, 2 out, the least possible; 12 in all.

    device  before           after            receives
    0       [0, 2) x [0, 1)  [0, 1) x [0, 2)  [0, 1) x [1, 2) from 1
    1       [0, 2) x [1, 2)  [0, 1) x [2, 4)  [0, 1) x [2, 3) from 2, [0, 1) x [3, 4) from 3
    2       [0, 2) x [2, 3)  [1, 2) x [0, 2)  [1, 2) x [0, 1) from 0, [1, 2) x [1, 2) from 1
    3       [0, 2) x [3, 4)  [1, 2) x [2, 4)  [1, 2) x [2, 3) from 2
    4       [2, 4) x [0, 1)  [2, 3) x [0, 2)  [2, 3) x [1, 2) from 5
    5       [2, 4) x [1, 2)  [2, 3) x [2, 4)  [2, 3) x [2, 3) from 6, [2, 3) x [3, 4) from 7
    6       [2, 4) x [2, 3)  [3, 4) x [0, 2)  [3, 4) x [0, 1) from 4, [3, 4) x [1, 2) from 5
    7       [2, 4) x [3, 4)  [3, 4) x [2, 4)  [3, 4) x [2, 3) from 6

Form: windows; chunks of tiles are shifted in VMEM, and put together from a staging area.
On the wire 1024.000 times the exact bytes, 2,048 into the busiest device.
HBM reads and writes 1664.50 times the least possible.
Staging 2,048 bytes of HBM, 385,024 of VMEM.

Made by
    shardwright emit --mesh x=2,y=2,z=2 --shape 4x4 --dtype int8 --source '[{"x"}, {"y", "z"}]' --target '[{"x", "y"}, {"z"}]' --name move_major_2x2x2
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

SHAPE = (4, 4)
DTYPE = "int8"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=2, "z"=2]>'
SOURCE = '[{"x"}, {"y", "z"}]'
TARGET = '[{"x", "y"}, {"z"}]'
LOCAL_SOURCE_SHAPE = (2, 1)
LOCAL_TARGET_SHAPE = (1, 2)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "1dfc569fb6345f96"  # processes that exchange must have the same
SOURCE_AXES = TARGET_AXES = (("x", 2), ("y", 2), ("z", 2))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 2048  # that arrive at the busiest device, padding included
COLLECTIVE_ID = 700


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return div(position, 4), rem(position, 4)


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return div(position, 2), rem(position, 2)


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = div(position, 4) * 2
    lo1 = rem(position, 4)
    return lo0, lo0 + 2, lo1, lo1 + 1


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = div(position, 2)
    lo1 = rem(position, 2) * 2
    return lo0, lo0 + 1, lo1, lo1 + 2


def tile(a0, a1, b0, b1):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_lo0 = a0 * 2
    target_lo1 = b1 * 2
    return (
        maximum(source_lo0, b0),
        minimum(source_lo0 + 2, b0 + 1),
        maximum(a1, target_lo1),
        minimum(a1 + 1, target_lo1 + 2),
    )


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    first0 = div(position, 4)
    first1 = rem(position, 2) * 2
    return first0, 1, first1, 2


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    first0 = div(position, 4) * 2
    first1 = rem(div(position, 2), 2)
    return first0, 2, first1, 1


def target_position(b0, b1, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return b0 * 2 + b1


def holder(a0, a1, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0 * 4 + a1


def source_at(i0, i1):
    """Index of the source shard, per dimension, that holds an element of the tensor."""
    return div(i0, 2), i1


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("x", ("y", "z")))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P(("x", "y"), "z"))
PEERS = Peers(
    _SOURCE,
    _TARGET,
    Forms(source_shard, target_shard, tile, senders, receivers, target_position, holder),
)
# Tiles start and end anywhere: they travel in chunks, each shifted, into a staging area.
# From there every block of the target shard is put together.
TILING = Tiling(
    unit=(8, 128),  # as memory is tiled
    chunk=(32, 128),  # in whole units, of the widest tile, 1 x 1, or a part of it
    window=(64, 256),  # a unit more where a chunk may begin within one
    blocks=(1, 1),  # ceil(target shard, 1 x 2 / chunk)
    meet=(1, 2),  # source shards that a block meets at most
    chunks=(1, 1),  # ceil(widest tile, 1 x 1 / chunk)
    stage=(8, 256),  # tiles lie as in the target shard, each from a whole unit on,
    step=(0, 128),  # and so much further for each tile before it: no two share a unit
    rolled=(0, 1),  # the dimensions along which chunks are shifted
    more_rows=6,  # memory of fewer rows is tiled otherwise
)
_PROGRAM = Windows(PEERS, (0, 1), TILING, source_at, collective_id=COLLECTIVE_ID)
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
