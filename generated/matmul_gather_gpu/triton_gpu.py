"""Multiplies bfloat16[8192, 8192] by [8192, 8192] over 8 devices.

C[i, k] = sum over j of A[i, j] * B[j, k], on <["i"=8]>.
lhs: [{"i"}, {}], shards of 1024 x 8192.
rhs: [{}, {"i"}], shards of 8192 x 1024.
out: [{}, {"i"}], shards of 8192 x 1024.

Along "i", case 4: lhs splits i, rhs splits k.

Each device multiplies 8192 x 8192 by 8192 x 1024, 137438953472 flops, in tiles of 128 x 128, 64 of
    j at a time.
It takes 117440512 bytes of lhs from its peers while it multiplies what has come.
On the wire 117440512 bytes into the busiest device.
A device sums its products in float32.

    device  lhs                       rhs                       out
    0       [0, 1024) x [0, 8192)     [0, 8192) x [0, 1024)     [0, 8192) x [0, 1024)
    1       [1024, 2048) x [0, 8192)  [0, 8192) x [1024, 2048)  [0, 8192) x [1024, 2048)
    2       [2048, 3072) x [0, 8192)  [0, 8192) x [2048, 3072)  [0, 8192) x [2048, 3072)
    3       [3072, 4096) x [0, 8192)  [0, 8192) x [3072, 4096)  [0, 8192) x [3072, 4096)
    4       [4096, 5120) x [0, 8192)  [0, 8192) x [4096, 5120)  [0, 8192) x [4096, 5120)
    5       [5120, 6144) x [0, 8192)  [0, 8192) x [5120, 6144)  [0, 8192) x [5120, 6144)
    6       [6144, 7168) x [0, 8192)  [0, 8192) x [6144, 7168)  [0, 8192) x [6144, 7168)
    7       [7168, 8192) x [0, 8192)  [0, 8192) x [7168, 8192)  [0, 8192) x [7168, 8192)

Made by
    shardwright emit manifest.json --name matmul_gather_gpu  # in the folder above this one
"""

import os

if not __package__:
    raise ImportError("part of a package: above FOLDER, run `python -m FOLDER.NAME.triton_gpu`")
if __name__ == "__main__":
    os.environ.setdefault("TRITON_INTERPRET", "1")

from .._support import require
from .._support.torch_matmul import TritonMatmul

require("triton_gpu", "1fc8777d4ecff1ff", __name__)

__all__ = ["matmul", "matmul_local", "synchronize"]

LHS_SHAPE = (8192, 8192)
RHS_SHAPE = (8192, 8192)
OUT_SHAPE = (8192, 8192)
DTYPE = "bfloat16"
OUT_DTYPE = "bfloat16"
MESH = '<["i"=8]>'
LHS = '[{"i"}, {}]'
RHS = '[{}, {"i"}]'
OUT = '[{}, {"i"}]'
IDS = range(8)  # by mesh position
WIRE_BYTES = 117440512


def lhs_box(position):
    """Tensor range (low, high), per dimension, of the lhs shard at a position."""
    lo0 = position * 1024
    return lo0, lo0 + 1024, 0, 8192


def rhs_box(position):
    """Tensor range (low, high), per dimension, of the rhs shard at a position."""
    lo1 = position * 1024
    return 0, 8192, lo1, lo1 + 1024


def out_box(position):
    """Tensor range (low, high), per dimension, of the out shard at a position."""
    lo1 = position * 1024
    return 0, 8192, lo1, lo1 + 1024


def product_box(position):
    """Tensor range (low, high), per dimension, of the product shard at a position."""
    lo2 = position * 1024
    return 0, 8192, 0, 8192, lo2, lo2 + 1024


_HOST = TritonMatmul(
    __name__,
    f"{LHS} by {RHS} to {OUT} of {LHS_SHAPE}, {RHS_SHAPE} {DTYPE}, {OUT_DTYPE} on {MESH}",
    (LHS_SHAPE, RHS_SHAPE, OUT_SHAPE),
    (DTYPE, OUT_DTYPE),
    IDS,
    (lhs_box, rhs_box, out_box, product_box),
    blocks=(128, 128, 64),
    warps=8,
    stages=3,
)
matmul, matmul_local, synchronize = _HOST.matmul, _HOST.matmul_local, _HOST.synchronize

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
