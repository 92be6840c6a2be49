"""Reshards bfloat16[8, 6] over 4 devices: [{"x"}, {"y"}] -> [{"x"}, {"y"}].

Source: [{"x"}, {"y"}] on <["x"=2, "y"=2]>, shards of 4 x 3.
    d1(x, y)[k0, k1] -> t[x * 4 + k0, y * 3 + k1]
Target: [{"x"}, {"y"}] on <["x"=2, "y"=2]> (device ids below), shards of 4 x 3.
    d2(x, y)[k0, k1] -> t[x * 4 + k0, y * 3 + k1]

Bytes of the busiest device: 24 in, 24 out, the least possible; 96 in all.

A permutation: every shard goes whole to one device.

    device          0  1  2  3
    sends to        3  2  1  0
    receives from   3  2  1  0

Form: windows; chunks of tiles are shifted in VMEM, and put together from a staging area.
On the wire 85.333 times the exact bytes, 2,048 into the busiest device.
HBM reads and writes 192.50 times the least possible.
Staging 2,048 bytes of HBM, 73,728 of VMEM.

Made by
    shardwright emit --mesh x=2,y=2 --shape 8x6 --dtype bfloat16 --source '[{"x"}, {"y"}]' --target '[{"x"}, {"y"}]' --target-mesh '<["x"=2, "y"=2], device_ids=[3, 2, 1, 0]>' --name reversed_devices
"""

import os

if not __package__:
    raise ImportError("part of a package: above FOLDER, run `python -m FOLDER.NAME.pallas_tpu`")
if __name__ == "__main__":  # on one device more than there are, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=5")

from jax.sharding import PartitionSpec as P

from .._support import absent, require
from .._support.jax_meshes import Sharded
from .._support.jax_orders import TwoOrders
from .._support.pallas_peers import div, maximum, minimum, rem
from .._support.pallas_pieces import Forms, Peers
from .._support.pallas_windows import Tiling, Windows

require("pallas_tpu", "936fbc8de82eccb1", __name__)

__getattr__ = absent(__name__)
__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (8, 6)
DTYPE = "bfloat16"
SOURCE_MESH = '<["x"=2, "y"=2]>'
TARGET_MESH = '<["x"=2, "y"=2], device_ids=[3, 2, 1, 0]>'
SOURCE = '[{"x"}, {"y"}]'
TARGET = '[{"x"}, {"y"}]'
LOCAL_SOURCE_SHAPE = LOCAL_TARGET_SHAPE = (4, 3)
# Device ids by mesh position.
SOURCE_IDS = range(4)
TARGET_IDS = (3, 2, 1, 0)
PLAN = "bd00e7cba3915f9c"  # processes that exchange must have the same
SOURCE_AXES = TARGET_AXES = (("x", 2), ("y", 2))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 2048  # that arrive at the busiest device, padding included
COLLECTIVE_ID = 23748


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return div(position, 2), rem(position, 2)


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return div(position, 2), rem(position, 2)


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = div(position, 2) * 4
    lo1 = rem(position, 2) * 3
    return lo0, lo0 + 4, lo1, lo1 + 3


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = div(position, 2) * 4
    lo1 = rem(position, 2) * 3
    return lo0, lo0 + 4, lo1, lo1 + 3


def tile(a0, a1, b0, b1):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_lo0 = a0 * 4
    target_lo0 = b0 * 4
    source_lo1 = a1 * 3
    target_lo1 = b1 * 3
    return (
        maximum(source_lo0, target_lo0),
        minimum(source_lo0 + 4, target_lo0 + 4),
        maximum(source_lo1, target_lo1),
        minimum(source_lo1 + 3, target_lo1 + 3),
    )


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    first0 = div(position, 2)
    first1 = rem(position, 2)
    return first0, 1, first1, 1


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    first0 = div(position, 2)
    first1 = rem(position, 2)
    return first0, 1, first1, 1


def target_position(b0, b1, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return b0 * 2 + b1


def holder(a0, a1, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0 * 2 + a1


def source_at(i0, i1):
    """Index of the source shard, per dimension, that holds an element of the tensor."""
    return div(i0, 4), div(i1, 3)


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("x", "y"))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("x", "y"))
PEERS = Peers(
    _SOURCE,
    _TARGET,
    Forms(source_shard, target_shard, tile, senders, receivers, target_position, holder),
    kept=False,
)
# Tiles start and end anywhere: they travel in chunks, each shifted, into a staging area.
# From there every block of the target shard is put together.
TILING = Tiling(
    unit=(8, 128),  # as memory is tiled
    chunk=(16, 128),  # in whole units, of the widest tile, 4 x 3, or a part of it
    window=(16, 128),  # a unit more where a chunk may begin within one
    blocks=(1, 1),  # ceil(target shard, 4 x 3 / chunk)
    meet=(1, 1),  # source shards that a block meets at most
    chunks=(1, 1),  # ceil(widest tile, 4 x 3 / chunk)
    stage=(8, 128),  # tiles lie as in the target shard, each from a whole unit on,
    step=(0, 0),  # and so much further for each tile before it: no two share a unit
    more_rows=4,  # memory of fewer rows is tiled otherwise
)
_PROGRAM = Windows(PEERS, (0, 1), TILING, source_at, collective_id=COLLECTIVE_ID)
_HOST = TwoOrders(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
