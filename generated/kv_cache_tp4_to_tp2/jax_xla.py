"""Reshards bfloat16[32, 2048, 8, 128] over 4 devices: [{}, {}, {"a", "b"}, {}] -> [{"b"}, {},
    {"a"}, {}].

Source: [{}, {}, {"a", "b"}, {}] on <["a"=2, "b"=2]>, shards of 32 x 2048 x 2 x 128.
    d1(a, b)[k0, k1, k2, k3] -> t[k0, k1, a * 4 + b * 2 + k2, k3]
Target: [{"b"}, {}, {"a"}, {}] on <["a"=2, "b"=2]>, shards of 16 x 2048 x 4 x 128.
    d2(a, b)[k0, k1, k2, k3] -> t[b * 16 + k0, k1, a * 4 + k2, k3]

Along dimension 0, source shards of 32 meet target shards of 16: 1 source shard for each target
    shard.
Along dimension 2, source shards of 2 meet target shards of 4: 2 source shards for each target
    shard.
No device receives over 16777216 bytes or sends over 16777216, the least possible.
All devices together receive 67108864.

Ranges along dimensions 0, 2:

    device  before            after              receives
    0       [0, 32) x [0, 2)  [0, 16) x [0, 4)   [0, 16) x [2, 4) from 1
    1       [0, 32) x [2, 4)  [16, 32) x [0, 4)  [16, 32) x [0, 2) from 0
    2       [0, 32) x [4, 6)  [0, 16) x [4, 8)   [0, 16) x [6, 8) from 3
    3       [0, 32) x [6, 8)  [16, 32) x [4, 8)  [16, 32) x [4, 6) from 2

Transport: collectives over axes.
The wire carries 1.000 times the bytes of the tiles.
The busiest device receives 16777216 bytes, padding included.

Emitted by
    shardwright emit --mesh a=2,b=2 --shape 32x2048x8x128 --dtype bfloat16 --source '[{}, {}, {"a", "b"}, {}]' --target '[{"b"}, {}, {"a"}, {}]' --backends pallas_tpu,triton_gpu,jax_xla --name kv_cache_tp4_to_tp2
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.jax_xla` in the folder that contains FOLDER")
if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

from jax import lax
from jax.sharding import PartitionSpec as P

from .._support import require
from .._support.jax_host import OneOrder
from .._support.jax_meshes import Sharded
from .._support.xla_bits import as_bits_but_on_tpu
from .._support.xla_program import XlaProgram

require("jax_xla", "89900a20de0aba33", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (32, 2048, 8, 128)
DTYPE = "bfloat16"
SOURCE_MESH = TARGET_MESH = '<["a"=2, "b"=2]>'
SOURCE = '[{}, {}, {"a", "b"}, {}]'
TARGET = '[{"b"}, {}, {"a"}, {}]'
LOCAL_SOURCE_SHAPE = (32, 2048, 2, 128)
LOCAL_TARGET_SHAPE = (16, 2048, 4, 128)
SOURCE_IDS = TARGET_IDS = range(4)  # by mesh position
PLAN = "0b6fb016d4de1e7a"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("a", 2), ("b", 2))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 16777216  # received by the busiest device, padding included
AXES = ("a", "b")  # mesh axes that number the devices


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo2 = position * 2
    return 0, 32, 0, 2048, lo2, lo2 + 2, 0, 128


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position % 2 * 16
    lo2 = position // 2 * 4
    return lo0, lo0 + 16, 0, 2048, lo2, lo2 + 4, 0, 128


_SOURCE = Sharded(
    SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P(None, None, ("a", "b"), None)
)
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("b", None, "a", None))


def _exchange(x):
    """Return the target shard of a device from its source shard, inside shard_map."""
    x = x.reshape(2, 16, 2048, 2, 128)
    x = lax.all_to_all(x, "b", split_axis=0, concat_axis=2)
    y = x.reshape(16, 2048, 4, 128)
    return y


_PROGRAM = XlaProgram(_exchange, AXES, bits=as_bits_but_on_tpu)
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
