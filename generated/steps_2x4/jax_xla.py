"""Reshards float32[16, 24] over 8 devices: [{"x"}, {"y"}] -> [{"y"}, {}].

Source: [{"x"}, {"y"}] on <["x"=2, "y"=4]>, shards of 8 x 6.
    d1(x, y)[k0, k1] -> t[x * 8 + k0, y * 6 + k1]
Target: [{"y"}, {}] on <["x"=2, "y"=4]>, shards of 4 x 24.
    d2(x, y)[k0, k1] -> t[y * 4 + k0, k1]

Steps, with the bytes that each brings to the busiest device:
    1. all_to_all over "y":(2)2: [{"x"}, {"y"}] -> [{"x", "y":(2)2}, {"y":(1)2}]; 96 bytes
    2. all_gather over "y":(1)2: [{"x", "y":(2)2}, {"y":(1)2}] -> [{"x", "y":(2)2}, {}]; 192 bytes
    3. permute over "x", "y": [{"x", "y":(2)2}, {}] -> [{"y"}, {}]; 384 bytes

Bytes received: 672 by the busiest device (the least possible is 384), 3840 in total.
Bytes sent: 480 by the busiest device (the least possible is 384).
Memory: 768 bytes of the tensor on a device at most, the shards
before and after one step together; what XLA takes within a step is beside that.

    device  source              target
    0       [0, 8) x [0, 6)     [0, 4) x [0, 24)
    1       [0, 8) x [6, 12)    [4, 8) x [0, 24)
    2       [0, 8) x [12, 18)   [8, 12) x [0, 24)
    3       [0, 8) x [18, 24)   [12, 16) x [0, 24)
    4       [8, 16) x [0, 6)    [0, 4) x [0, 24)
    5       [8, 16) x [6, 12)   [4, 8) x [0, 24)
    6       [8, 16) x [12, 18)  [8, 12) x [0, 24)
    7       [8, 16) x [18, 24)  [12, 16) x [0, 24)

The busiest device receives 672 bytes.

Emitted by
    shardwright emit --mesh x=2,y=4 --shape 16x24 --dtype float32 --source '[{"x"}, {"y"}]' --target '[{"y"}, {}]' --backends jax_xla --strategy basis --topology torus:2x4,wrap=0x0,bandwidth=5e+10,latency=1e-06,powers_of_two=1,ragged=512,memory=8.19e+11 --name steps_2x4
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
from .._support.xla_program import XlaProgram

require("jax_xla", "89900a20de0aba33", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (16, 24)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=4]>'
SOURCE = '[{"x"}, {"y"}]'
TARGET = '[{"y"}, {}]'
LOCAL_SOURCE_SHAPE = (8, 6)
LOCAL_TARGET_SHAPE = (4, 24)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "964a1afb4ca45d3f"  # hash of the plan: equal on all processes that exchange
# The meshes, their axes refined into the sub-axes in use.
SOURCE_AXES = (("x", 2), ("y:(1)2", 2), ("y:(2)2", 2))
TARGET_AXES = (("x", 2), ("y", 4))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 672  # received by the busiest device, padding included
AXES = ("x", "y:(1)2", "y:(2)2")  # mesh axes that number the devices


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position // 4 * 8
    lo1 = position % 4 * 6
    return lo0, lo0 + 8, lo1, lo1 + 6


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position % 4 * 4
    return lo0, lo0 + 4, 0, 24


_SOURCE = Sharded(
    SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("x", ("y:(1)2", "y:(2)2"))
)
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("y", None))


def _exchange(x):
    """Return the target shard of a device from its source shard, inside shard_map."""
    # 1. all_to_all over "y":(2)2: [{"x"}, {"y"}] -> [{"x", "y":(2)2}, {"y":(1)2}]
    x = lax.all_to_all(x, "y:(2)2", split_axis=0, concat_axis=1, tiled=True)
    # 2. all_gather over "y":(1)2: [{"x", "y":(2)2}, {"y":(1)2}] -> [{"x", "y":(2)2}, {}]
    x = lax.all_gather(x, "y:(1)2", axis=1, tiled=True)
    # 3. permute over "x", "y": [{"x", "y":(2)2}, {}] -> [{"y"}, {}]
    y = lax.ppermute(x, AXES, [(2, 4), (0, 0), (3, 5), (1, 1), (4, 2), (6, 6), (5, 3), (7, 7)])
    return y


_PROGRAM = XlaProgram(_exchange, AXES)
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
