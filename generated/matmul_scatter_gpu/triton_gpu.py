"""Multiplies bfloat16[8192, 8192] by [8192, 8192] over 8 devices.

C[i, k] = sum over j of A[i, j] * B[j, k], on <["i"=8]>.
lhs: [{}, {"i"}], shards of 8192 x 1024.
rhs: [{"i"}, {}], shards of 1024 x 8192.
out: [{"i"}, {}], shards of 1024 x 8192.

Along "i", case 3: lhs splits its contracting dimension j, rhs splits its contracting dimension j.

Each device multiplies 8192 x 1024 by 1024 x 8192, 137438953472 flops, in tiles of 128 x 128, 64 of
    j at a time.
Tiles of other devices' results go to them as they are made, 117440512 bytes to each, those of the
    farthest device first.
On the wire 117440512 bytes into the busiest device.
A device sums its products in float32.
Partial sums of devices are bfloat16; who has the result adds them in float32, in the order of their
    ranges of j, and rounds once.

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
    shardwright emit generated/manifest.json --name matmul_scatter_gpu -o generated
"""

import os

if not __package__:
    raise ImportError("part of a package: above FOLDER, run `python -m FOLDER.NAME.triton_gpu`")
if __name__ == "__main__":
    os.environ.setdefault("TRITON_INTERPRET", "1")

from .._support import require
from .._support.torch_matmul import TritonMatmul

require("triton_gpu", "46e5e04e023c60eb", __name__)

__all__ = ["matmul", "matmul_local", "synchronize"]

LHS_SHAPE = (8192, 8192)
RHS_SHAPE = (8192, 8192)
OUT_SHAPE = (8192, 8192)
DTYPE = "bfloat16"
OUT_DTYPE = "bfloat16"
MESH = '<["i"=8]>'
LHS = '[{}, {"i"}]'
RHS = '[{"i"}, {}]'
OUT = '[{"i"}, {}]'
IDS = range(8)  # by mesh position
WIRE_BYTES = 117440512


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


def product_box(position):
    """Tensor range (low, high), per dimension, of the product shard at a position."""
    lo1 = position * 1024
    return 0, 8192, lo1, lo1 + 1024, 0, 8192


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
