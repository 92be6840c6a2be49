"""Multiplies bfloat16[8, 2048] by [2048, 8192] over 8 devices.

C[i, k] = sum over j of A[i, j] * B[j, k], on <["X"=4, "Y"=2]>.
lhs: [{"X"}, {"Y"}], shards of 2 x 1024.
rhs: [{}, {"Y"}], shards of 2048 x 4096.
out: [{"X"}, {"Y"}], shards of 2 x 4096.

Along "X", case 1: lhs is split along i, rhs has replicas.
Along "Y", case 2: lhs is split along its contracting dimension j, rhs is split along k.

Steps, with the bytes that each brings to the busiest device:
    1. lhs, all_gather over "Y": [{"X"}, {"Y"}] -> [{"X"}, {}]; 4096 bytes
    2. Each device multiplies 2 x 2048 by 2048 x 4096, 33554432 flops

The busiest device receives 4096 bytes.
A device sums its products in float32.

    device  lhs                    rhs                       out
    0       [0, 2) x [0, 1024)     [0, 2048) x [0, 4096)     [0, 2) x [0, 4096)
    1       [0, 2) x [1024, 2048)  [0, 2048) x [4096, 8192)  [0, 2) x [4096, 8192)
    2       [2, 4) x [0, 1024)     [0, 2048) x [0, 4096)     [2, 4) x [0, 4096)
    3       [2, 4) x [1024, 2048)  [0, 2048) x [4096, 8192)  [2, 4) x [4096, 8192)
    4       [4, 6) x [0, 1024)     [0, 2048) x [0, 4096)     [4, 6) x [0, 4096)
    5       [4, 6) x [1024, 2048)  [0, 2048) x [4096, 8192)  [4, 6) x [4096, 8192)
    6       [6, 8) x [0, 1024)     [0, 2048) x [0, 4096)     [6, 8) x [0, 4096)
    7       [6, 8) x [1024, 2048)  [0, 2048) x [4096, 8192)  [6, 8) x [4096, 8192)

Emitted by
    shardwright emit manifest.json --name matmul_book_4x2  # in the parent folder
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.jax_xla` in the folder that contains FOLDER")
if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from .._support import require
from .._support.jax_matmul import ArrayMatmul
from .._support.jax_meshes import Sharded

require("jax_xla", "89900a20de0aba33", __name__)

__all__ = ["lhs_sharding", "matmul", "out_sharding", "pad_lhs", "pad_rhs", "rhs_sharding", "unpad"]

LHS_SHAPE = (8, 2048)
RHS_SHAPE = (2048, 8192)
OUT_SHAPE = (8, 8192)
DTYPE = OUT_DTYPE = "bfloat16"
MESH = '<["X"=4, "Y"=2]>'
LHS = '[{"X"}, {"Y"}]'
RHS = '[{}, {"Y"}]'
OUT = '[{"X"}, {"Y"}]'
IDS = range(8)  # by mesh position
PADDED_LHS_SHAPE = LHS_SHAPE
PADDED_RHS_SHAPE = RHS_SHAPE
PADDED_OUT_SHAPE = OUT_SHAPE
MESH_AXES = (("X", 4), ("Y", 2))
WIRE_BYTES = 4096  # received by the busiest device
AXES = ("X", "Y")  # mesh axes that number the devices


def lhs_box(position):
    """Tensor range (low, high), per dimension, of the lhs shard at a position."""
    lo0 = position // 2 * 2
    lo1 = position % 2 * 1024
    return lo0, lo0 + 2, lo1, lo1 + 1024


def rhs_box(position):
    """Tensor range (low, high), per dimension, of the rhs shard at a position."""
    lo1 = position % 2 * 4096
    return 0, 2048, lo1, lo1 + 4096


def out_box(position):
    """Tensor range (low, high), per dimension, of the out shard at a position."""
    lo0 = position // 2 * 2
    lo1 = position % 2 * 4096
    return lo0, lo0 + 2, lo1, lo1 + 4096


_LHS = Sharded(IDS, lhs_box, PADDED_LHS_SHAPE, MESH_AXES, P("X", "Y"))
_RHS = Sharded(IDS, rhs_box, PADDED_RHS_SHAPE, MESH_AXES, P(None, "Y"))
_OUT = Sharded(IDS, out_box, PADDED_OUT_SHAPE, MESH_AXES, P("X", "Y"))


def _multiply(a, b):
    """Return a device's shard of the product, given its operand shards; called inside shard_map."""
    # 1. lhs, all_gather over "Y": [{"X"}, {"Y"}] -> [{"X"}, {}]
    a = lax.all_gather(a, "Y", axis=1, tiled=True)
    # 2. Each device multiplies 2 x 2048 by 2048 x 4096, 33554432 flops
    c = jnp.matmul(a, b, preferred_element_type=jnp.float32)
    c = c.astype(OUT_DTYPE)
    return c


_HOST = ArrayMatmul(
    __name__,
    (LHS_SHAPE, RHS_SHAPE, OUT_SHAPE),
    (DTYPE, OUT_DTYPE),
    (_LHS, _RHS, _OUT),
    _multiply,
    AXES,
)
matmul, pad_lhs, pad_rhs, unpad = _HOST.matmul, _HOST.pad_lhs, _HOST.pad_rhs, _HOST.unpad
lhs_sharding, rhs_sharding, out_sharding = _LHS.on, _RHS.on, _OUT.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
