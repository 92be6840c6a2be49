"""Reshards float32[50257, 768] over 8 devices: [{"x", "y"}, {}] -> [{"y"}, {"x"}].

Source: [{"x", "y"}, {}] on <["x"=2, "y"=4]>, shards of 6283 x 768.
    d1(x, y)[k0, k1] -> t[x * 25132 + y * 6283 + k0, k1]
    The last shards are short or empty along dimension 0, padded at the end to 6283 x 768.
Target: [{"y"}, {"x"}] on <["x"=2, "y"=4]>, shards of 12565 x 384.
    d2(x, y)[k0, k1] -> t[y * 12565 + k0, x * 384 + k1]
    The last shards are short or empty along dimension 0, padded at the end to 12565 x 384.

Along dimension 0, shards of 6283 meet shards of 12565: up to 3 of the source for one of the target.
Along dimension 1, shards of 768 meet shards of 384: one of the source for one of the target.
Bytes of the busiest device: 19299840 in, 19301376 out, the least possible; 135097344 in all.

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

Form: windows; chunks of tiles are shifted in VMEM, and put together from a staging area.
On the wire 1.001 times the exact bytes, 19,329,024 into the busiest device.
HBM reads and writes 1.89 times the least possible.
Staging 19,329,024 bytes of HBM, 4,239,360 of VMEM.

Made by
    shardwright emit --mesh x=2,y=4 --shape 50257x768 --dtype float32 --source '[{"x", "y"}, {}]' --target '[{"y"}, {"x"}]' --backends pallas_tpu,triton_gpu,jax_xla --name gpt2_vocab_uneven
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

SHAPE = (50257, 768)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=4]>'
SOURCE = '[{"x", "y"}, {}]'
TARGET = '[{"y"}, {"x"}]'
LOCAL_SOURCE_SHAPE = (6283, 768)
LOCAL_TARGET_SHAPE = (12565, 384)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "7f4b2ea0e22afa50"  # processes that exchange must have the same
SOURCE_AXES = TARGET_AXES = (("x", 2), ("y", 4))
# Every shard padded at its end to the largest: the shapes of the global arrays.
PADDED_SOURCE_SHAPE = (50264, 768)
PADDED_TARGET_SHAPE = (50260, 768)
WIRE_BYTES = 19329024  # that arrive at the busiest device, padding included
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
# From there every block of the target shard is put together.
TILING = Tiling(
    unit=(8, 128),  # as memory is tiled
    chunk=(208, 384),  # in whole units, of the widest tile, 6283 x 384, or a part of it
    window=(216, 384),  # a unit more where a chunk may begin within one
    blocks=(61, 1),  # ceil(target shard, 12565 x 384 / chunk)
    meet=(2, 1),  # source shards that a block meets at most
    chunks=(31, 1),  # ceil(widest tile, 6283 x 384 / chunk)
    stage=(12584, 384),  # tiles lie as in the target shard, each from a whole unit on,
    step=(8, 0),  # and so much further for each tile before it: no two share a unit
    rolled=(0,),  # the dimensions along which chunks are shifted
)
_PROGRAM = Windows(PEERS, (0, 1), TILING, source_at, collective_id=COLLECTIVE_ID)
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
