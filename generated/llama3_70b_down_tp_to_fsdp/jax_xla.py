"""Reshards bfloat16[28672, 8192] over 8 devices: [{"model"}, {"data"}] -> [{"data", "model"}, {}].

Source: [{"model"}, {"data"}] on <["data"=2, "model"=4]>, shards of 7168 x 4096.
    d1(data, model)[k0, k1] -> t[model * 7168 + k0, data * 4096 + k1]
Target: [{"data", "model"}, {}] on <["data"=2, "model"=4]>, shards of 3584 x 8192.
    d2(data, model)[k0, k1] -> t[data * 14336 + model * 3584 + k0, k1]

Along dimension 0, source shards of 7168 meet target shards of 3584: 1 source shard for each target
    shard.
Along dimension 1, source shards of 4096 meet target shards of 8192: 2 source shards for each target
    shard.
No device receives over 58720256 bytes or sends over 58720256, the least possible.
All devices together receive 411041792.

    device  before                         after
    0       [0, 7168) x [0, 4096)          [0, 3584) x [0, 8192)
            receives [0, 3584) x [4096, 8192) from 4
    1       [7168, 14336) x [0, 4096)      [3584, 7168) x [0, 8192)
            receives [3584, 7168) x [0, 4096) from 0, [3584, 7168) x [4096, 8192) from 4
    2       [14336, 21504) x [0, 4096)     [7168, 10752) x [0, 8192)
            receives [7168, 10752) x [0, 4096) from 1, [7168, 10752) x [4096, 8192) from 5
    3       [21504, 28672) x [0, 4096)     [10752, 14336) x [0, 8192)
            receives [10752, 14336) x [0, 4096) from 1, [10752, 14336) x [4096, 8192) from 5
    4       [0, 7168) x [4096, 8192)       [14336, 17920) x [0, 8192)
            receives [14336, 17920) x [0, 4096) from 2, [14336, 17920) x [4096, 8192) from 6
    5       [7168, 14336) x [4096, 8192)   [17920, 21504) x [0, 8192)
            receives [17920, 21504) x [0, 4096) from 2, [17920, 21504) x [4096, 8192) from 6
    6       [14336, 21504) x [4096, 8192)  [21504, 25088) x [0, 8192)
            receives [21504, 25088) x [0, 4096) from 3, [21504, 25088) x [4096, 8192) from 7
    7       [21504, 28672) x [4096, 8192)  [25088, 28672) x [0, 8192)
            receives [25088, 28672) x [0, 4096) from 3

Transport: 2 rounds of lax.ppermute, boxes padded to one shape in each round.
The wire carries 1.000 times the bytes of the tiles.
The busiest device receives 58720256 bytes, padding included.

Emitted by
    shardwright emit --mesh data=2,model=4 --shape 28672x8192 --dtype bfloat16 --source '[{"model"}, {"data"}]' --target '[{"data", "model"}, {}]' --backends pallas_tpu,triton_gpu,jax_xla --name llama3_70b_down_tp_to_fsdp
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
from .._support.xla_program import XlaProgram
from .._support.xla_rounds import in_rounds, rounds_of

require("jax_xla", "89900a20de0aba33", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (28672, 8192)
DTYPE = "bfloat16"
SOURCE_MESH = TARGET_MESH = '<["data"=2, "model"=4]>'
SOURCE = '[{"model"}, {"data"}]'
TARGET = '[{"data", "model"}, {}]'
LOCAL_SOURCE_SHAPE = (7168, 4096)
LOCAL_TARGET_SHAPE = (3584, 8192)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "ef3960b3b2f47e46"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("data", 2), ("model", 4))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 58720256  # received by the busiest device, padding included
AXES = ("data", "model")  # mesh axes that number the devices


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position % 4 * 7168
    lo1 = position // 4 * 4096
    return lo0, lo0 + 7168, lo1, lo1 + 4096


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position * 3584
    return lo0, lo0 + 3584, 0, 8192


def senders(receiver):
    """Positions that the parts of a target shard come from."""
    return [a1 * 4 + receiver // 2 for a1 in range(2)]


def receivers(sender):
    """Positions that the parts of a source shard go to."""
    return range(sender % 4 * 2, sender % 4 * 2 + 2)


def round_of(sender, receiver, piece):
    """The number of the round in which a box goes from a sender to a receiver."""
    number = sender // 4 + receiver - sender % 4 * 2
    return number % 2


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("model", "data"))
_TARGET = Sharded(
    TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P(("data", "model"), None)
)
MOVES = Exchange(_SOURCE, _TARGET, senders, receivers)


def _exchange(x):
    """Return the target shard of a device from its source shard, inside shard_map."""
    rounds = rounds_of(MOVES, round_of)
    y = in_rounds(x, rounds, AXES, (3584, 8192))
    return y


_PROGRAM = XlaProgram(_exchange, AXES, bits=as_bits, moves=MOVES)
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
