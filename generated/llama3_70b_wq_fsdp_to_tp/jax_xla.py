"""Reshards bfloat16[8192, 8192] over 8 devices: [{"data", "model"}, {}] -> [{}, {"model"}].

Source: [{"data", "model"}, {}] on <["data"=2, "model"=4]>, shards of 1024 x 8192.
    d1(data, model)[k0, k1] -> t[data * 4096 + model * 1024 + k0, k1]
Target: [{}, {"model"}] on <["data"=2, "model"=4]>, shards of 8192 x 2048.
    d2(data, model)[k0, k1] -> t[k0, model * 2048 + k1]

Along dimension 0, source shards of 1024 meet target shards of 8192: 8 source shards for each target
    shard.
Along dimension 1, source shards of 8192 meet target shards of 2048: 1 source shard for each target
    shard.
No device receives over 29360128 bytes or sends over 29360128, the least possible.
All devices together receive 234881024.

A device sends the intersection of its range before and the receiver's after.

    device  before                    after                     receives
    0       [0, 1024) x [0, 8192)     [0, 8192) x [0, 2048)     from 1, 2, 3, 4, 5, 6, 7
    1       [1024, 2048) x [0, 8192)  [0, 8192) x [2048, 4096)  from 0, 2, 3, 4, 5, 6, 7
    2       [2048, 3072) x [0, 8192)  [0, 8192) x [4096, 6144)  from 0, 1, 3, 4, 5, 6, 7
    3       [3072, 4096) x [0, 8192)  [0, 8192) x [6144, 8192)  from 0, 1, 2, 4, 5, 6, 7
    4       [4096, 5120) x [0, 8192)  [0, 8192) x [0, 2048)     from 0, 1, 2, 3, 5, 6, 7
    5       [5120, 6144) x [0, 8192)  [0, 8192) x [2048, 4096)  from 0, 1, 2, 3, 4, 6, 7
    6       [6144, 7168) x [0, 8192)  [0, 8192) x [4096, 6144)  from 0, 1, 2, 3, 4, 5, 7
    7       [7168, 8192) x [0, 8192)  [0, 8192) x [6144, 8192)  from 0, 1, 2, 3, 4, 5, 6

Transport: one lax.all_to_all among groups of 8 devices.
The wire carries 1.000 times the bytes of the tiles.
The busiest device receives 29360128 bytes, padding included.

Emitted by
    shardwright emit --mesh data=2,model=4 --shape 8192x8192 --dtype bfloat16 --source '[{"data", "model"}, {}]' --target '[{}, {"model"}]' --backends pallas_tpu,triton_gpu,jax_xla --name llama3_70b_wq_fsdp_to_tp
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.jax_xla` in the folder that contains FOLDER")
if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

from jax.sharding import PartitionSpec as P

from .._support import require
from .._support.exchanges import Exchange
from .._support.jax_host import OneOrder
from .._support.jax_meshes import Sharded
from .._support.xla_bits import as_bits
from .._support.xla_groups import among_groups
from .._support.xla_program import XlaProgram

require("jax_xla", "89900a20de0aba33", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (8192, 8192)
DTYPE = "bfloat16"
SOURCE_MESH = TARGET_MESH = '<["data"=2, "model"=4]>'
SOURCE = '[{"data", "model"}, {}]'
TARGET = '[{}, {"model"}]'
LOCAL_SOURCE_SHAPE = (1024, 8192)
LOCAL_TARGET_SHAPE = (8192, 2048)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "9b2f2d590602314f"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("data", 2), ("model", 4))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 29360128  # received by the busiest device, padding included
AXES = ("data", "model")  # mesh axes that number the devices


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position * 1024
    return lo0, lo0 + 1024, 0, 8192


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo1 = position % 4 * 2048
    return 0, 8192, lo1, lo1 + 2048


def senders(receiver):
    """Positions that the parts of a target shard come from."""
    return range(8)


def receivers(sender):
    """Positions that the parts of a source shard go to."""
    return [replica * 4 + b1 for b1 in range(4) for replica in range(2)]


_SOURCE = Sharded(
    SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P(("data", "model"), None)
)
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P(None, "model"))
MOVES = Exchange(_SOURCE, _TARGET, senders, receivers)


def _exchange(x):
    """Return the target shard of a device from its source shard, inside shard_map."""
    y = among_groups(x, MOVES, AXES)
    y = y.reshape(8192, 2048)
    return y


_PROGRAM = XlaProgram(_exchange, AXES, bits=as_bits, moves=MOVES)
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
