"""Reshards float32[6, 6] over 6 devices: [{"x"}, {"y"}] -> [{"y"}, {"x"}].

Source: [{"x"}, {"y"}] on <["x"=2, "y"=3]>, shards of 3 x 2.
    d1(x, y)[k0, k1] -> t[x * 3 + k0, y * 2 + k1]
Target: [{"y"}, {"x"}] on <["x"=2, "y"=3]>, shards of 2 x 3.
    d2(x, y)[k0, k1] -> t[y * 2 + k0, x * 3 + k1]

Along dimension 0, source shards of 3 meet target shards of 2: up to 2 source shards for each target
    shard.
Along dimension 1, source shards of 2 meet target shards of 3: 2 source shards for each target
    shard.
No device receives over 24 bytes or sends over 24, the least possible.
All devices together receive 104.

    device  before           after            receives
    0       [0, 3) x [0, 2)  [0, 2) x [0, 3)  [0, 2) x [2, 3) from 1
    1       [0, 3) x [2, 4)  [2, 4) x [0, 3)  [2, 3) x [0, 2) from 0, [3, 4) x [0, 2) from 3,
                                              [3, 4) x [2, 3) from 4
    2       [0, 3) x [4, 6)  [4, 6) x [0, 3)  [4, 6) x [0, 2) from 3, [4, 6) x [2, 3) from 4
    3       [3, 6) x [0, 2)  [0, 2) x [3, 6)  [0, 2) x [3, 4) from 1, [0, 2) x [4, 6) from 2
    4       [3, 6) x [2, 4)  [2, 4) x [3, 6)  [2, 3) x [3, 4) from 1, [2, 3) x [4, 6) from 2,
                                              [3, 4) x [4, 6) from 5
    5       [3, 6) x [4, 6)  [4, 6) x [3, 6)  [4, 6) x [3, 4) from 4

Transport: 6 rounds of lax.ppermute, all boxes of a round of one shape; ROUNDS lists the receivers.
The wire carries 1.000 times the bytes of the tiles.
The busiest device receives 24 bytes, padding included.

Emitted by
    shardwright emit --mesh x=2,y=3 --shape 6x6 --dtype float32 --source '[{"x"}, {"y"}]' --target '[{"y"}, {"x"}]' --backends pallas_tpu,triton_gpu,jax_xla --name transpose_2x3
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.jax_xla` in the folder that contains FOLDER")
if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=6")

from jax.sharding import PartitionSpec as P

from .._support import require
from .._support.jax_host import OneOrder
from .._support.jax_meshes import Sharded
from .._support.xla_program import XlaProgram
from .._support.xla_rounds import in_rounds, listed, listed_rounds

require("jax_xla", "89900a20de0aba33", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (6, 6)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=3]>'
SOURCE = '[{"x"}, {"y"}]'
TARGET = '[{"y"}, {"x"}]'
LOCAL_SOURCE_SHAPE = (3, 2)
LOCAL_TARGET_SHAPE = (2, 3)
SOURCE_IDS = TARGET_IDS = range(6)  # by mesh position
PLAN = "360c3f1aba5d3d82"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("x", 2), ("y", 3))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 24  # received by the busiest device, padding included
AXES = ("x", "y")  # mesh axes that number the devices
# For each round, by rank: the rank to which it sends a whole tile, or -1 for none.
ROUNDS = (
    (-1, 4, -1, -1, 1, -1), (-1, 1, -1, -1, 4, -1), (-1, -1, -1, 1, -1, 4), (1, -1, 4, -1, -1, -1),
    (-1, 0, -1, -1, 2, -1), (-1, 3, -1, -1, 5, -1), (0, -1, 3, 2, -1, 5),
)  # fmt: skip


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position // 3 * 3
    lo1 = position % 3 * 2
    return lo0, lo0 + 3, lo1, lo1 + 2


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position % 3 * 2
    lo1 = position // 3 * 3
    return lo0, lo0 + 2, lo1, lo1 + 3


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("x", "y"))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("y", "x"))
MOVES = listed(ROUNDS, _SOURCE, _TARGET)


def _exchange(x):
    """Return the target shard of a device from its source shard, inside shard_map."""
    rounds = listed_rounds(MOVES, ROUNDS)
    y = in_rounds(x, rounds, AXES, (2, 3))
    return y


_PROGRAM = XlaProgram(_exchange, AXES, moves=MOVES)
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
