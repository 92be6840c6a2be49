"""Multiplies bfloat16[8192, 8192] by [8192, 8192] over 8 devices.

C[i, k] = sum over j of A[i, j] * B[j, k], on <["i"=8]>.
lhs: [{}, {"i"}], shards of 8192 x 1024.
rhs: [{"i"}, {}], shards of 1024 x 8192.
out: [{"i"}, {}], shards of 1024 x 8192.

Along "i", case 3: lhs splits its contracting dimension j, rhs splits its contracting dimension j.

Steps, with the bytes that each brings to the busiest device:
    1. The product of 8192 x 1024 by 1024 x 8192 on each device, 137438953472 flops, while parts go
        both ways round rings: out, reduce_scatter over "i": [{}, {}], unreduced={"i"} -> [{"i"},
        {}]; 117440512 bytes

On the wire 117440512 bytes into the busiest device.
A device sums its products in float32. Partial sums of devices are bfloat16; a part is rounded to
    that at each of its hops round a ring.
Partial sums of C along i go round rings of 8 devices, a half of each up and one down, in one kernel
    with the product: blocks of A 512 x 1024, of B 1024 x 1024; the operand that does not travel in
    VMEM. It takes 24576 KiB of VMEM.

    device  lhs                       rhs                       out
    0       [0, 8192) x [0, 1024)     [0, 1024) x [0, 8192)     [0, 1024) x [0, 8192)
    1       [0, 8192) x [1024, 2048)  [1024, 2048) x [0, 8192)  [1024, 2048) x [0, 8192)
    2       [0, 8192) x [2048, 3072)  [2048, 3072) x [0, 8192)  [2048, 3072) x [0, 8192)
    3       [0, 8192) x [3072, 4096)  [3072, 4096) x [0, 8192)  [3072, 4096) x [0, 8192)
    4       [0, 8192) x [4096, 5120)  [4096, 5120) x [0, 8192)  [4096, 5120) x [0, 8192)
    5       [0, 8192) x [5120, 6144)  [5120, 6144) x [0, 8192)  [5120, 6144) x [0, 8192)
    6       [0, 8192) x [6144, 7168)  [6144, 7168) x [0, 8192)  [6144, 7168) x [0, 8192)
    7       [0, 8192) x [7168, 8192)  [7168, 8192) x [0, 8192)  [7168, 8192) x [0, 8192)

Made by
    shardwright emit manifest.json --name matmul_scatter_kernel  # in the folder above this one
"""

import os

if not __package__:
    raise ImportError("part of a package: above FOLDER, run `python -m FOLDER.NAME.pallas_tpu`")
if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=9")

from jax.sharding import PartitionSpec as P

from .._support import require
from .._support.jax_meshes import Sharded
from .._support.pallas_matmul import PallasMatmul, RingMatmul

require("pallas_tpu", "03ef38cfe499f4d3", __name__)

__all__ = ["lhs_sharding", "matmul", "out_sharding", "pad_lhs", "pad_rhs", "rhs_sharding", "unpad"]

LHS_SHAPE = (8192, 8192)
RHS_SHAPE = (8192, 8192)
OUT_SHAPE = (8192, 8192)
DTYPE = OUT_DTYPE = "bfloat16"
MESH = '<["i"=8]>'
LHS = '[{}, {"i"}]'
RHS = '[{"i"}, {}]'
OUT = '[{"i"}, {}]'
IDS = range(8)  # by mesh position
# Every shard padded at its end to the largest: the shapes of the global arrays.
PADDED_LHS_SHAPE = LHS_SHAPE
PADDED_RHS_SHAPE = RHS_SHAPE
PADDED_OUT_SHAPE = OUT_SHAPE
MESH_AXES = (("i", 8),)
WIRE_BYTES = 117440512  # that arrive at the busiest device
AXES = "i"  # over which devices are ranked


def lhs_box(position):
    """Tensor range (low, high), per dimension, of the lhs shard at a position."""
    lo1 = position * 1024
    return 0, 8192, lo1, lo1 + 1024


def rhs_box(position):
    """Tensor range (low, high), per dimension, of the rhs shard at a position."""
    lo0 = position * 1024
    return lo0, lo0 + 1024, 0, 8192


def out_box(position):
    """Tensor range (low, high), per dimension, of the out shard at a position."""
    lo0 = position * 1024
    return lo0, lo0 + 1024, 0, 8192


_LHS = Sharded(IDS, lhs_box, PADDED_LHS_SHAPE, MESH_AXES, P(None, "i"))
_RHS = Sharded(IDS, rhs_box, PADDED_RHS_SHAPE, MESH_AXES, P("i", None))
_OUT = Sharded(IDS, out_box, PADDED_OUT_SHAPE, MESH_AXES, P("i", None))
_RING = RingMatmul(
    "c",
    "i",
    AXES,
    devices=8,
    digits=((1, 8),),
    order=(1, 3, 5, 7, 6, 4, 2, 0),
    ways=2,
    extents=(1, 8192, 1024, 8192),
    blocks=(1, 512, 1024, 1024),
    stays=True,
    keeps=False,
    dtypes=("bfloat16", "float32", "bfloat16"),
    vmem=112 << 20,
    collective_id=27588,
)


def _multiply(a, b, interpret):
    """Return the shard of the product on a device from those of the operands, inside shard_map."""
    # 1. The product of 8192 x 1024 by 1024 x 8192 on each device, 137438953472 flops, while parts
    #    go both ways round rings: out, reduce_scatter over "i": [{}, {}], unreduced={"i"} ->
    #    [{"i"}, {}]
    c = _RING.product(a, b, interpret)
    return c


_HOST = PallasMatmul(
    __name__,
    (LHS_SHAPE, RHS_SHAPE, OUT_SHAPE),
    (DTYPE, OUT_DTYPE),
    (_LHS, _RHS, _OUT),
    _multiply,
    AXES,
    ring=_RING,
)
matmul, pad_lhs, pad_rhs, unpad = _HOST.matmul, _HOST.pad_lhs, _HOST.pad_rhs, _HOST.unpad
lhs_sharding, rhs_sharding, out_sharding = _LHS.on, _RHS.on, _OUT.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
