"""Reshards bfloat16[256, 2048, 1792] over 8 devices: [{"ep", "tp"}, {}, {}] -> [{"ep"}, {},
    {"tp"}].

Source: [{"ep", "tp"}, {}, {}] on <["ep"=4, "tp"=2]>, shards of 32 x 2048 x 1792.
    d1(ep, tp)[k0, k1, k2] -> t[ep * 64 + tp * 32 + k0, k1, k2]
Target: [{"ep"}, {}, {"tp"}] on <["ep"=4, "tp"=2]>, shards of 64 x 2048 x 896.
    d2(ep, tp)[k0, k1, k2] -> t[ep * 64 + k0, k1, tp * 896 + k2]

Along dimension 0, source shards of 32 meet target shards of 64: 2 source shards for each target
    shard.
Along dimension 2, source shards of 1792 meet target shards of 896: 1 source shard for each target
    shard.
No device receives over 117440512 bytes or sends over 117440512, the least possible.
All devices together receive 939524096.

Ranges along dimensions 0, 2:

    device  before                  after                     receives
    0       [0, 32) x [0, 1792)     [0, 64) x [0, 896)        [32, 64) x [0, 896) from 1
    1       [32, 64) x [0, 1792)    [0, 64) x [896, 1792)     [0, 32) x [896, 1792) from 0
    2       [64, 96) x [0, 1792)    [64, 128) x [0, 896)      [96, 128) x [0, 896) from 3
    3       [96, 128) x [0, 1792)   [64, 128) x [896, 1792)   [64, 96) x [896, 1792) from 2
    4       [128, 160) x [0, 1792)  [128, 192) x [0, 896)     [160, 192) x [0, 896) from 5
    5       [160, 192) x [0, 1792)  [128, 192) x [896, 1792)  [128, 160) x [896, 1792) from 4
    6       [192, 224) x [0, 1792)  [192, 256) x [0, 896)     [224, 256) x [0, 896) from 7
    7       [224, 256) x [0, 1792)  [192, 256) x [896, 1792)  [192, 224) x [896, 1792) from 6

Transport: collectives over axes.
The wire carries 1.000 times the bytes of the tiles.
The busiest device receives 117440512 bytes, padding included.

Emitted by
    shardwright emit --mesh ep=4,tp=2 --shape 256x2048x1792 --dtype bfloat16 --source '[{"ep", "tp"}, {}, {}]' --target '[{"ep"}, {}, {"tp"}]' --backends pallas_tpu,triton_gpu,jax_xla --name moe_experts_ep_to_tp
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
from .._support.xla_bits import as_bits_but_on_tpu
from .._support.xla_program import XlaProgram

require("jax_xla", "89900a20de0aba33", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (256, 2048, 1792)
DTYPE = "bfloat16"
SOURCE_MESH = TARGET_MESH = '<["ep"=4, "tp"=2]>'
SOURCE = '[{"ep", "tp"}, {}, {}]'
TARGET = '[{"ep"}, {}, {"tp"}]'
LOCAL_SOURCE_SHAPE = (32, 2048, 1792)
LOCAL_TARGET_SHAPE = (64, 2048, 896)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "237b58d872a475da"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("ep", 4), ("tp", 2))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 117440512  # received by the busiest device, padding included
AXES = ("ep", "tp")  # mesh axes that number the devices


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position * 32
    return lo0, lo0 + 32, 0, 2048, 0, 1792


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position // 2 * 64
    lo2 = position % 2 * 896
    return lo0, lo0 + 64, 0, 2048, lo2, lo2 + 896


_SOURCE = Sharded(
    SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P(("ep", "tp"), None, None)
)
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("ep", None, "tp"))


def _exchange(x):
    """Return the target shard of a device from its source shard, inside shard_map."""
    x = x.reshape(32, 2048, 2, 896)
    x = lax.all_to_all(x, "tp", split_axis=2, concat_axis=0)
    y = x.reshape(64, 2048, 896)
    return y


_PROGRAM = XlaProgram(_exchange, AXES, bits=as_bits_but_on_tpu)
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
