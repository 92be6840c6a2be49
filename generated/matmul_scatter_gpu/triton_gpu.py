"""Multiplies bfloat16[4096, 16384] by [16384, 8192] over 8 devices.

C[i, k] = sum over j of A[i, j] * B[j, k], on <["i"=8]>.
lhs: [{}, {"i"}], shards of 4096 x 2048.
rhs: [{"i"}, {}], shards of 2048 x 8192.
out: [{"i"}, {}], shards of 512 x 8192.

Along "i", case 3: lhs splits its contracting dimension j, rhs splits its contracting dimension j.

Each device multiplies 4096 x 2048 by 2048 x 8192, 137438953472 flops, in tiles of 128 x 128, 64 of
    j at a time.
Tiles of other devices' results go to them as they are made, 58720256 bytes to each, those of the
    farthest device first.
On the wire 58720256 bytes into the busiest device.
A device sums its products in float32.
Partial sums of devices are bfloat16; who has the result adds them in float32, in the order of their
    ranges of j, and rounds once.

    device  lhs                         rhs                         out
    0       [0, 4096) x [0, 2048)       [0, 2048) x [0, 8192)       [0, 512) x [0, 8192)
    1       [0, 4096) x [2048, 4096)    [2048, 4096) x [0, 8192)    [512, 1024) x [0, 8192)
    2       [0, 4096) x [4096, 6144)    [4096, 6144) x [0, 8192)    [1024, 1536) x [0, 8192)
    3       [0, 4096) x [6144, 8192)    [6144, 8192) x [0, 8192)    [1536, 2048) x [0, 8192)
    4       [0, 4096) x [8192, 10240)   [8192, 10240) x [0, 8192)   [2048, 2560) x [0, 8192)
    5       [0, 4096) x [10240, 12288)  [10240, 12288) x [0, 8192)  [2560, 3072) x [0, 8192)
    6       [0, 4096) x [12288, 14336)  [12288, 14336) x [0, 8192)  [3072, 3584) x [0, 8192)
    7       [0, 4096) x [14336, 16384)  [14336, 16384) x [0, 8192)  [3584, 4096) x [0, 8192)

Made by
    shardwright emit manifest.json --name matmul_scatter_gpu  # in the folder above this one
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

LHS_SHAPE = (4096, 16384)
RHS_SHAPE = (16384, 8192)
OUT_SHAPE = (4096, 8192)
DTYPE = "bfloat16"
OUT_DTYPE = "bfloat16"
MESH = '<["i"=8]>'
LHS = '[{}, {"i"}]'
RHS = '[{"i"}, {}]'
OUT = '[{"i"}, {}]'
IDS = range(8)  # by mesh position
WIRE_BYTES = 58720256


def lhs_box(position):
    """Tensor range (low, high), per dimension, of the lhs shard at a position."""
    lo1 = position * 2048
    return 0, 4096, lo1, lo1 + 2048


def rhs_box(position):
    """Tensor range (low, high), per dimension, of the rhs shard at a position."""
    lo0 = position * 2048
    return lo0, lo0 + 2048, 0, 8192


def out_box(position):
    """Tensor range (low, high), per dimension, of the out shard at a position."""
    lo0 = position * 512
    return lo0, lo0 + 512, 0, 8192


def product_box(position):
    """Tensor range (low, high), per dimension, of the product shard at a position."""
    lo1 = position * 2048
    return 0, 4096, lo1, lo1 + 2048, 0, 8192


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
