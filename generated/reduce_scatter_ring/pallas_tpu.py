"""Reshards float32[8192, 1024] over 4 devices: [{}, {}], unreduced={"x"} -> [{"x"}, {}].

Source: [{}, {}], unreduced={"x"} on <["x"=4]>, shards of 8192 x 1024.
    d1(x)[k0, k1] -> t[k0, k1]
Target: [{"x"}, {}] on <["x"=4]>, shards of 2048 x 1024.
    d2(x)[k0, k1] -> t[x * 2048 + k0, k1]

Bytes of the busiest device: 25165824 in, 25165824 out, the least possible; 100663296 in all.

    device  source                 target
    0       [0, 8192) x [0, 1024)  [0, 2048) x [0, 1024)
    1       [0, 8192) x [0, 1024)  [2048, 4096) x [0, 1024)
    2       [0, 8192) x [0, 1024)  [4096, 6144) x [0, 1024)
    3       [0, 8192) x [0, 1024)  [6144, 8192) x [0, 1024)

Form: ring; partial results go from device to device, each combines its own with them.
Rings along "x", as 32 bits an element; 25,165,824 bytes into every device.
Along "x" a ring goes up over even coordinates, down over odd ones.
Of a part the first 1,048,576 elements go upwards: their terms are combined from
that of the next device on to that of the one that keeps them; of the others downwards.

Made by
    shardwright emit --mesh x=4 --shape 8192x1024 --dtype float32 --source '[{}, {}], unreduced={"x"}' --target '[{"x"}, {}]' --backends pallas_tpu --topology torus:2x2,wrap=0x0,bandwidth=5e+10,latency=1e-06,powers_of_two=1,ragged=512,memory=8.19e+11 --name reduce_scatter_ring
"""

import os

if not __package__:
    raise ImportError("part of a package: above FOLDER, run `python -m FOLDER.NAME.pallas_tpu`")
if __name__ == "__main__":  # on one device more than there are, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=5")

from jax.sharding import PartitionSpec as P

from .._support import require
from .._support.jax_host import OneOrder
from .._support.jax_meshes import Sharded
from .._support.jax_program import Terms
from .._support.pallas_ring import Ring, Round

require("pallas_tpu", "705db046c7069245", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (8192, 1024)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=4]>'
SOURCE = '[{}, {}], unreduced={"x"}'
TARGET = '[{"x"}, {}]'
LOCAL_SOURCE_SHAPE = (1, 8192, 1024)
LOCAL_TARGET_SHAPE = (2048, 1024)
SOURCE_IDS = TARGET_IDS = range(4)  # by mesh position
PLAN = "98c8923312d58532"  # processes that exchange must have the same
SOURCE_AXES = TARGET_AXES = (("x", 4),)
# Every shard padded at its end to the largest: the shapes of the global arrays.
PADDED_SOURCE_SHAPE = (4, 8192, 1024)
PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 25165824  # that arrive at the busiest device, padding included
COLLECTIVE_ID = 2352


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    return position, position + 1, 0, 8192, 0, 1024


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position * 2048
    return lo0, lo0 + 2048, 0, 1024


_SOURCE = Sharded(
    SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("x", None, None), terms=True
)
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("x", None))
_PROGRAM = Ring(
    "x",
    (Round(1, 4, folded=True),),
    Terms("sum", "sum"),
    rows=1024,
    chunks=8,
    collective_id=COLLECTIVE_ID,
    powers_of_two=True,
)
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
