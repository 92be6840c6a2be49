"""Reshards float32[5, 3] over 4 devices: [{"x", "y"}, {}] -> [{"x", "y"}, {}].

Source: [{"x", "y"}, {}] on <["x"=2, "y"=2]>, shards of 2 x 3.
    d1(x, y)[k0, k1] -> t[x * 3 + k0 + (min(3, 5 - x * 3) + 1) // 2 * y, k1]
    The last shards are short or empty along dimension 0, padded at the end to 2 x 3.
Target: [{"x", "y"}, {}] on <["x"=2, "y"=2]>, shards of 2 x 3.
    d2(x, y)[k0, k1] -> t[x * 4 + y * 2 + k0, k1]
    The last shards are short or empty along dimension 0, padded at the end to 2 x 3.

Along dimension 0, shards of 2 meet shards of 2: up to 2 of the source for one of the target.
Bytes of the busiest device: 12 in, 12 out, the least possible; 24 in all.

Ranges along dimension 0:

    device  before  after   receives
    0       [0, 2)  [0, 2)  nothing
    1       [2, 3)  [2, 4)  [3, 4) from 2
    2       [3, 4)  [4, 5)  [4, 5) from 3
    3       [4, 5)  empty   nothing

Form: windows; chunks of tiles are shifted in VMEM, and put together from a staging area.
On the wire 341.333 times the exact bytes, 4,096 into the busiest device.
HBM reads and writes 341.95 times the least possible.
Staging 8,192 bytes of HBM, 81,920 of VMEM.

Made by
    shardwright emit --mesh x=2,y=2 --shape 5x3 --dtype float32 --source '[{"x", "y"}, {}]' --target '[{"x", "y"}, {}]' --source-split nested --name torch_nested_2x2
"""

import os

if not __package__:
    raise ImportError("part of a package: above FOLDER, run `python -m FOLDER.NAME.pallas_tpu`")
if __name__ == "__main__":  # on one device more than there are, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=5")

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

SHAPE = (5, 3)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=2]>'
SOURCE = '[{"x", "y"}, {}]'
TARGET = '[{"x", "y"}, {}]'
LOCAL_SOURCE_SHAPE = LOCAL_TARGET_SHAPE = (2, 3)
SOURCE_IDS = TARGET_IDS = range(4)  # by mesh position
PLAN = "441183c62af0e638"  # processes that exchange must have the same
SOURCE_AXES = TARGET_AXES = (("x", 2), ("y", 2))
# Every shard padded at its end to the largest: the shapes of the global arrays.
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = (8, 3)
WIRE_BYTES = 4096  # that arrive at the busiest device, padding included
COLLECTIVE_ID = 23724


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return position, 0


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return position, 0


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    offset0 = div(position, 2) * 3
    length0 = minimum(3, 5 - offset0)
    chunk0 = div(length0 + 1, 2)
    offset0_1 = minimum(rem(position, 2) * chunk0, length0)
    lo0 = offset0 + offset0_1
    length0_1 = minimum(chunk0, length0 - offset0_1)
    return lo0, length0_1 + lo0, 0, 3


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = minimum(position * 2, 5)
    return lo0, minimum(lo0 + 2, 5), 0, 3


def tile(a0, a1, b0, b1):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_offset0 = div(a0, 2) * 3
    source_length0 = minimum(3, 5 - source_offset0)
    source_chunk0 = div(source_length0 + 1, 2)
    source_offset0_1 = minimum(rem(a0, 2) * source_chunk0, source_length0)
    source_lo0 = source_offset0 + source_offset0_1
    source_length0_1 = minimum(source_chunk0, source_length0 - source_offset0_1)
    target_lo0 = minimum(b0 * 2, 5)
    return (
        maximum(source_lo0, target_lo0),
        minimum(source_length0_1 + source_lo0, minimum(target_lo0 + 2, 5)),
        0,
        3,
    )


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    peer_digit0 = div(minimum(position * 2, 4), 3)
    peer_rest0 = minimum(position * 2, 4) - peer_digit0 * 3
    peer_length0 = minimum(3, 5 - peer_digit0 * 3)
    peer_chunk0 = div(peer_length0 + 1, 2)
    peer_digit0_1 = div(peer_rest0, peer_chunk0)
    peer_index0 = peer_digit0 * 2 + peer_digit0_1
    peer_digit0_2 = div(minimum(minimum(position * 2, 5) + 2, 5) - 1, 3)
    peer_rest0_2 = minimum(minimum(position * 2, 5) + 2, 5) - peer_digit0_2 * 3 - 1
    peer_length0_2 = minimum(3, 5 - peer_digit0_2 * 3)
    peer_chunk0_1 = div(peer_length0_2 + 1, 2)
    peer_digit0_3 = div(peer_rest0_2, peer_chunk0_1)
    peer_index0_1 = peer_digit0_2 * 2 + peer_digit0_3
    return peer_index0, peer_index0_1 + 1 - peer_index0, 0, 1


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    offset0 = div(position, 2) * 3
    length0 = minimum(3, 5 - offset0)
    chunk0 = div(length0 + 1, 2)
    offset0_1 = minimum(rem(position, 2) * chunk0, length0)
    lo0 = offset0 + offset0_1
    length0_1 = minimum(chunk0, length0 - offset0_1)
    first0 = div(minimum(lo0, 4), 2)
    return first0, div(maximum(length0_1 + lo0, 1) - 1, 2) + 1 - first0, 0, 1


def target_position(b0, b1, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return b0


def holder(a0, a1, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0


def source_at(i0, i1):
    """Index of the source shard, per dimension, that holds an element of the tensor."""
    digit0 = div(i0, 3)
    rest0 = i0 - digit0 * 3
    length0 = minimum(3, 5 - digit0 * 3)
    chunk0 = div(length0 + 1, 2)
    digit0_1 = div(rest0, chunk0)
    index0 = digit0 * 2 + digit0_1
    return index0, 0


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P(("x", "y"), None))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P(("x", "y"), None))
PEERS = Peers(
    _SOURCE,
    _TARGET,
    Forms(source_shard, target_shard, tile, senders, receivers, target_position, holder),
)
# Tiles start and end anywhere: they travel in chunks, each shifted, into a staging area.
# From there every block of the target shard is put together.
TILING = Tiling(
    unit=(8, 128),  # as memory is tiled
    chunk=(8, 128),  # in whole units, of the widest tile, 2 x 3, or a part of it
    window=(16, 128),  # a unit more where a chunk may begin within one
    blocks=(1, 1),  # ceil(target shard, 2 x 3 / chunk)
    meet=(2, 1),  # source shards that a block meets at most
    chunks=(1, 1),  # ceil(widest tile, 2 x 3 / chunk)
    stage=(16, 128),  # tiles lie as in the target shard, each from a whole unit on,
    step=(8, 0),  # and so much further for each tile before it: no two share a unit
    rolled=(0,),  # the dimensions along which chunks are shifted
    more_rows=6,  # memory of fewer rows is tiled otherwise
)
_PROGRAM = Windows(
    PEERS, (0, 1), TILING, source_at, collective_id=COLLECTIVE_ID, source_parts={0: 4}
)
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
