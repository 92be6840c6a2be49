"""Reshards bfloat16[4096, 64, 128] over 8 devices: [{}, {"sp"}, {}] -> [{"sp"}, {}, {}].

Source: [{}, {"sp"}, {}] on <["sp"=8]>, shards of 4096 x 8 x 128.
    d1(sp)[k0, k1, k2] -> t[k0, sp * 8 + k1, k2]
Target: [{"sp"}, {}, {}] on <["sp"=8]>, shards of 512 x 64 x 128.
    d2(sp)[k0, k1, k2] -> t[sp * 512 + k0, k1, k2]

Along dimension 0, source shards of 4096 meet target shards of 512: 1 source shard for each target
    shard.
Along dimension 1, source shards of 8 meet target shards of 64: 8 source shards for each target
    shard.
No device receives over 7340032 bytes or sends over 7340032, the least possible.
All devices together receive 58720256.

Ranges along dimensions 0, 1:
A device sends the intersection of its range before and the receiver's after.

    device  before                after                   receives
    0       [0, 4096) x [0, 8)    [0, 512) x [0, 64)      from 1, 2, 3, 4, 5, 6, 7
    1       [0, 4096) x [8, 16)   [512, 1024) x [0, 64)   from 0, 2, 3, 4, 5, 6, 7
    2       [0, 4096) x [16, 24)  [1024, 1536) x [0, 64)  from 0, 1, 3, 4, 5, 6, 7
    3       [0, 4096) x [24, 32)  [1536, 2048) x [0, 64)  from 0, 1, 2, 4, 5, 6, 7
    4       [0, 4096) x [32, 40)  [2048, 2560) x [0, 64)  from 0, 1, 2, 3, 5, 6, 7
    5       [0, 4096) x [40, 48)  [2560, 3072) x [0, 64)  from 0, 1, 2, 3, 4, 6, 7
    6       [0, 4096) x [48, 56)  [3072, 3584) x [0, 64)  from 0, 1, 2, 3, 4, 5, 7
    7       [0, 4096) x [56, 64)  [3584, 4096) x [0, 64)  from 0, 1, 2, 3, 4, 5, 6

Transport: collectives over axes.
The wire carries 1.000 times the bytes of the tiles.
The busiest device receives 7340032 bytes, padding included.

Emitted by
    shardwright emit --mesh sp=8 --shape 4096x64x128 --dtype bfloat16 --source '[{"sp"}, {}, {}]' --target '[{}, {"sp"}, {}]' --backends pallas_tpu,triton_gpu,jax_xla --gradient --name attention_seq_to_heads  # jax_xla_backward.py, the backward
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.jax_xla` in the folder that contains FOLDER")
if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

from jax import lax
from jax.sharding import PartitionSpec as P

from .._support import require
from .._support.jax_host import OneOrder
from .._support.jax_meshes import Sharded
from .._support.jax_operation import Operation
from .._support.xla_bits import as_bits_but_on_tpu
from .._support.xla_program import XlaProgram

require("jax_xla", "89900a20de0aba33", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (4096, 64, 128)
DTYPE = "bfloat16"
SOURCE_MESH = TARGET_MESH = '<["sp"=8]>'
SOURCE = '[{}, {"sp"}, {}]'
TARGET = '[{"sp"}, {}, {}]'
LOCAL_SOURCE_SHAPE = (4096, 8, 128)
LOCAL_TARGET_SHAPE = (512, 64, 128)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "433f61bb5df6aeab"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("sp", 8),)
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 7340032  # received by the busiest device, padding included
AXES = "sp"  # mesh axes that number the devices


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo1 = position * 8
    return 0, 4096, lo1, lo1 + 8, 0, 128


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position * 512
    return lo0, lo0 + 512, 0, 64, 0, 128


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P(None, "sp", None))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("sp", None, None))


def _exchange(x):
    """Return the target shard of a device from its source shard, inside shard_map."""
    x = x.reshape(8, 512, 8, 128)
    x = lax.all_to_all(x, "sp", split_axis=0, concat_axis=1)
    y = x.reshape(512, 64, 128)
    return y


_PROGRAM = XlaProgram(_exchange, AXES, bits=as_bits_but_on_tpu)
_HOST = OneOrder(
    __name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM, operation=Operation(__name__, "jax_xla")
)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
