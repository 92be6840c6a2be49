"""Reshards float32[64, 48] over 8 devices: [{}, {"model"}], unreduced={"data"} -> [{"data"},
    {"model"}].

Source: [{}, {"model"}], unreduced={"data"} on <["data"=4, "model"=2]>, shards of 1 x 64 x 24.
    d1(data, model)[k0, k1, k2] -> t[data + k0, k1, model * 24 + k2]
Target: [{"data"}, {"model"}] on <["data"=4, "model"=2]>, shards of 16 x 24.
    d2(data, model)[k0, k1] -> t[data * 16 + k0, model * 24 + k1]

Dimension 0 of the source stands for its unreduced axes, in the order of the mesh: its
elements are the terms, which are added up. Integers wrap; floats are added in an order that XLA
chooses.

Steps, with the bytes that each brings to the busiest device:
    1. reduce_scatter over "data": [{}, {"model"}], unreduced={"data"} -> [{"data"}, {"model"}];
        4608 bytes

No device receives over 4608 bytes or sends over 4608, the least possible.
All devices together receive 36864.
Memory: 7680 bytes of the tensor on a device at most, the shards
before and after one step together; what XLA takes within a step is beside that.

    device  source                       target
    0       [0, 1) x [0, 64) x [0, 24)   [0, 16) x [0, 24)
    1       [0, 1) x [0, 64) x [24, 48)  [0, 16) x [24, 48)
    2       [1, 2) x [0, 64) x [0, 24)   [16, 32) x [0, 24)
    3       [1, 2) x [0, 64) x [24, 48)  [16, 32) x [24, 48)
    4       [2, 3) x [0, 64) x [0, 24)   [32, 48) x [0, 24)
    5       [2, 3) x [0, 64) x [24, 48)  [32, 48) x [24, 48)
    6       [3, 4) x [0, 64) x [0, 24)   [48, 64) x [0, 24)
    7       [3, 4) x [0, 64) x [24, 48)  [48, 64) x [24, 48)

The busiest device receives 4608 bytes.

Emitted by
    shardwright emit --mesh data=4,model=2 --shape 64x48 --dtype float32 --source '[{}, {"model"}], unreduced={"data"}' --target '[{"data"}, {"model"}]' --backends jax_xla --name gradient_2x4
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
from .._support.jax_terms import Terms
from .._support.xla_program import XlaProgram

require("jax_xla", "89900a20de0aba33", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (64, 48)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["data"=4, "model"=2]>'
SOURCE = '[{}, {"model"}], unreduced={"data"}'
TARGET = '[{"data"}, {"model"}]'
LOCAL_SOURCE_SHAPE = (1, 64, 24)
LOCAL_TARGET_SHAPE = (16, 24)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "5c745580373311c7"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("data", 4), ("model", 2))
# The shapes of global arrays: dimension 0 numbers terms.
PADDED_SOURCE_SHAPE = (4, 64, 48)
PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 4608  # received by the busiest device, padding included
AXES = ("data", "model")  # mesh axes that number the devices


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position // 2
    lo2 = position % 2 * 24
    return lo0, lo0 + 1, 0, 64, lo2, lo2 + 24


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position // 2 * 16
    lo1 = position % 2 * 24
    return lo0, lo0 + 16, lo1, lo1 + 24


_SOURCE = Sharded(
    SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("data", None, "model"), terms=True
)
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("data", "model"))


def _exchange(x):
    """Return the target shard of a device from its source shard, inside shard_map."""
    x = x[0]
    # 1. reduce_scatter over "data": [{}, {"model"}], unreduced={"data"} -> [{"data"}, {"model"}]
    y = lax.psum_scatter(x, "data", scatter_dimension=0, tiled=True)
    return y


_PROGRAM = XlaProgram(_exchange, AXES, terms=Terms("sum", "sum"))
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
