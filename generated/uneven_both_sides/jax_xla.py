"""Reshards float32[7, 13, 29] over 8 devices: [{"x"}, {"y", "z"}, {}] -> [{}, {"z"}, {"y", "x"}].

Source: [{"x"}, {"y", "z"}, {}] on <["x"=2, "y"=2, "z"=2]>, shards of 4 x 4 x 29.
    d1(x, y, z)[k0, k1, k2] -> t[x * 4 + k0, y * 8 + z * 4 + k1, k2]
    The last shards along dimensions 0 and 1 are short or empty; they are padded at the end to 4 x 4
        x 29.
Target: [{}, {"z"}, {"y", "x"}] on <["x"=2, "y"=2, "z"=2]>, shards of 7 x 7 x 8.
    d2(x, y, z)[k0, k1, k2] -> t[k0, z * 7 + k1, y * 16 + x * 8 + k2]
    The last shards along dimensions 1 and 2 are short or empty; they are padded at the end to 7 x 7
        x 8.

Along dimension 0, source shards of 4 meet target shards of 7: 2 source shards for each target
    shard.
Along dimension 1, source shards of 4 meet target shards of 7: up to 3 source shards for each target
    shard.
Along dimension 2, source shards of 29 meet target shards of 8: 1 source shard for each target
    shard.
No device receives over 1568 bytes or sends over 1856, the least possible.
All devices together receive 9248.

    device  before                       after
    0       [0, 4) x [0, 4) x [0, 29)    [0, 7) x [0, 7) x [0, 8)
            receives [0, 4) x [4, 7) x [0, 8) from 1, [4, 7) x [0, 4) x [0, 8) from 4,
            [4, 7) x [4, 7) x [0, 8) from 5
    1       [0, 4) x [4, 8) x [0, 29)    [0, 7) x [7, 13) x [0, 8)
            receives [0, 4) x [8, 12) x [0, 8) from 2, [0, 4) x [12, 13) x [0, 8) from 3,
            [4, 7) x [7, 8) x [0, 8) from 5, [4, 7) x [8, 12) x [0, 8) from 6,
            [4, 7) x [12, 13) x [0, 8) from 7
    2       [0, 4) x [8, 12) x [0, 29)   [0, 7) x [0, 7) x [16, 24)
            receives [0, 4) x [0, 4) x [16, 24) from 0, [0, 4) x [4, 7) x [16, 24) from 1,
            [4, 7) x [0, 4) x [16, 24) from 4, [4, 7) x [4, 7) x [16, 24) from 5
    3       [0, 4) x [12, 13) x [0, 29)  [0, 7) x [7, 13) x [16, 24)
            receives [0, 4) x [7, 8) x [16, 24) from 1, [0, 4) x [8, 12) x [16, 24) from 2,
            [4, 7) x [7, 8) x [16, 24) from 5, [4, 7) x [8, 12) x [16, 24) from 6,
            [4, 7) x [12, 13) x [16, 24) from 7
    4       [4, 7) x [0, 4) x [0, 29)    [0, 7) x [0, 7) x [8, 16)
            receives [0, 4) x [0, 4) x [8, 16) from 0, [0, 4) x [4, 7) x [8, 16) from 1,
            [4, 7) x [4, 7) x [8, 16) from 5
    5       [4, 7) x [4, 8) x [0, 29)    [0, 7) x [7, 13) x [8, 16)
            receives [0, 4) x [7, 8) x [8, 16) from 1, [0, 4) x [8, 12) x [8, 16) from 2,
            [0, 4) x [12, 13) x [8, 16) from 3, [4, 7) x [8, 12) x [8, 16) from 6,
            [4, 7) x [12, 13) x [8, 16) from 7
    6       [4, 7) x [8, 12) x [0, 29)   [0, 7) x [0, 7) x [24, 29)
            receives [0, 4) x [0, 4) x [24, 29) from 0, [0, 4) x [4, 7) x [24, 29) from 1,
            [4, 7) x [0, 4) x [24, 29) from 4, [4, 7) x [4, 7) x [24, 29) from 5
    7       [4, 7) x [12, 13) x [0, 29)  [0, 7) x [7, 13) x [24, 29)
            receives [0, 4) x [7, 8) x [24, 29) from 1, [0, 4) x [8, 12) x [24, 29) from 2,
            [0, 4) x [12, 13) x [24, 29) from 3, [4, 7) x [7, 8) x [24, 29) from 5,
            [4, 7) x [8, 12) x [24, 29) from 6

Transport: 24 rounds of lax.ppermute, all boxes of a round of one shape; ROUNDS lists the receivers.
The wire carries 1.000 times the bytes of the tiles.
The busiest device receives 1568 bytes, padding included.

Emitted by
    shardwright emit --mesh x=2,y=2,z=2 --shape 7x13x29 --dtype float32 --source '[{"x"}, {"y", "z"}, {}]' --target '[{}, {"z"}, {"y", "x"}]' --backends pallas_tpu,triton_gpu,jax_xla --name uneven_both_sides
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.jax_xla` in the folder that contains FOLDER")
if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

from jax.sharding import PartitionSpec as P

from .._support import require
from .._support.jax_host import OneOrder
from .._support.jax_meshes import Sharded
from .._support.jax_padding import Padding
from .._support.xla_program import XlaProgram
from .._support.xla_rounds import in_rounds, listed, listed_rounds

require("jax_xla", "89900a20de0aba33", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (7, 13, 29)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=2, "z"=2]>'
SOURCE = '[{"x"}, {"y", "z"}, {}]'
TARGET = '[{}, {"z"}, {"y", "x"}]'
LOCAL_SOURCE_SHAPE = (4, 4, 29)
LOCAL_TARGET_SHAPE = (7, 7, 8)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "1e2916a2f71a9b7c"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("x", 2), ("y", 2), ("z", 2))
# The shapes of global arrays, every shard padded at its end to the largest.
PADDED_SOURCE_SHAPE = (8, 16, 29)
PADDED_TARGET_SHAPE = (7, 14, 32)
WIRE_BYTES = 1568  # received by the busiest device, padding included
AXES = ("x", "y", "z")  # mesh axes that number the devices
# For each round, by rank: the rank to which it sends a whole tile, or -1 for none.
ROUNDS = (
    (-1, -1, -1, -1, -1, -1, -1, 7), (-1, -1, -1, -1, -1, 7, -1, -1),
    (-1, -1, -1, -1, -1, 5, -1, 1), (-1, -1, -1, -1, -1, 1, -1, 3), (-1, -1, -1, -1, -1, 3, -1, 5),
    (-1, -1, -1, -1, -1, 6, -1, -1), (-1, -1, -1, -1, -1, 0, -1, -1),
    (-1, -1, -1, -1, -1, 2, -1, -1), (-1, -1, -1, -1, -1, 4, -1, -1),
    (-1, -1, -1, -1, 6, -1, 7, -1), (-1, -1, -1, -1, 0, -1, 1, -1), (-1, -1, -1, -1, 2, -1, 3, -1),
    (-1, -1, -1, -1, 4, -1, 5, -1), (-1, -1, -1, 7, -1, -1, -1, -1),
    (-1, 7, -1, -1, -1, -1, -1, -1), (-1, 5, -1, 1, -1, -1, -1, -1),
    (-1, 1, -1, 3, -1, -1, -1, -1), (-1, 3, -1, 5, -1, -1, -1, -1),
    (-1, 6, -1, -1, -1, -1, -1, -1), (-1, 0, -1, -1, -1, -1, -1, -1),
    (-1, 2, -1, -1, -1, -1, -1, -1), (-1, 4, -1, -1, -1, -1, -1, -1),
    (6, -1, 7, -1, -1, -1, -1, -1), (0, -1, 1, -1, -1, -1, -1, -1), (2, -1, 3, -1, -1, -1, -1, -1),
    (4, -1, 5, -1, -1, -1, -1, -1),
)  # fmt: skip


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position // 4 * 4
    lo1 = position % 4 * 4
    return lo0, min(lo0 + 4, 7), lo1, min(lo1 + 4, 13), 0, 29


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo1 = position % 2 * 7
    lo2 = position // 2 % 2 * 16 + position // 4 * 8
    return 0, 7, lo1, min(lo1 + 7, 13), lo2, min(lo2 + 8, 29)


_SOURCE = Sharded(
    SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("x", ("y", "z"), None)
)
_TARGET = Sharded(
    TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P(None, "z", ("y", "x"))
)
MOVES = listed(ROUNDS, _SOURCE, _TARGET)


def _exchange(x):
    """Return the target shard of a device from its source shard, inside shard_map."""
    rounds = listed_rounds(MOVES, ROUNDS)
    y = in_rounds(x, rounds, AXES, (7, 7, 8))
    return y


_PROGRAM = XlaProgram(_exchange, AXES, moves=MOVES)
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM, padding=Padding)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
