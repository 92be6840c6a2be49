"""Multiplies bfloat16[4, 8, 6] by [4, 6, 13] over 6 devices.

C[b0, i, k] = sum over j of A[b0, i, j] * B[b0, j, k], on <["x"=2, "y"=3]>.
lhs: [{"x"}, {}, {"y"}], shards of 2 x 8 x 2.
rhs: [{"x"}, {}, {"y"}], shards of 2 x 6 x 5.
    The last shards along dimension 2 are short or empty; they are padded at the end to 2 x 6 x 5.
out: [{"x"}, {}, {"y"}], shards of 2 x 8 x 5.
    The last shards along dimension 2 are short or empty; they are padded at the end to 2 x 8 x 5.

Along "x", case 1: lhs is split along batch 0, rhs is split along batch 0.
Along "y", case 2: lhs is split along its contracting dimension j, rhs is split along k.

Steps, with the bytes that each brings to the busiest device:
    1. lhs, all_gather over "y": [{"x"}, {}, {"y"}] -> [{"x"}, {}, {}]; 128 bytes
    2. Each device multiplies 2 x 8 x 6 by 2 x 6 x 5, 960 flops

The busiest device receives 128 bytes.
A device sums its products in float32.

    device  lhs                       rhs                         out
    0       [0, 2) x [0, 8) x [0, 2)  [0, 2) x [0, 6) x [0, 5)    [0, 2) x [0, 8) x [0, 5)
    1       [0, 2) x [0, 8) x [2, 4)  [0, 2) x [0, 6) x [5, 10)   [0, 2) x [0, 8) x [5, 10)
    2       [0, 2) x [0, 8) x [4, 6)  [0, 2) x [0, 6) x [10, 13)  [0, 2) x [0, 8) x [10, 13)
    3       [2, 4) x [0, 8) x [0, 2)  [2, 4) x [0, 6) x [0, 5)    [2, 4) x [0, 8) x [0, 5)
    4       [2, 4) x [0, 8) x [2, 4)  [2, 4) x [0, 6) x [5, 10)   [2, 4) x [0, 8) x [5, 10)
    5       [2, 4) x [0, 8) x [4, 6)  [2, 4) x [0, 6) x [10, 13)  [2, 4) x [0, 8) x [10, 13)

Emitted by
    shardwright emit manifest.json --name matmul_batch_uneven  # in the parent folder; jax_xla_lhs_backward.py, a gradient
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.jax_xla` in the folder that contains FOLDER")
if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=6")

import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from .._support import require
from .._support.jax_matmul import ArrayMatmul
from .._support.jax_meshes import Sharded
from .._support.jax_padding import Padding

require("jax_xla", "89900a20de0aba33", __name__)

__all__ = ["lhs_sharding", "matmul", "out_sharding", "pad_lhs", "pad_rhs", "rhs_sharding", "unpad"]

LHS_SHAPE = (4, 8, 6)
RHS_SHAPE = (4, 6, 13)
OUT_SHAPE = (4, 8, 13)
DTYPE = OUT_DTYPE = "bfloat16"
MESH = '<["x"=2, "y"=3]>'
LHS = '[{"x"}, {}, {"y"}]'
RHS = '[{"x"}, {}, {"y"}]'
OUT = '[{"x"}, {}, {"y"}]'
IDS = range(6)  # by mesh position
# The shapes of global arrays, every shard padded at its end to the largest.
PADDED_LHS_SHAPE = LHS_SHAPE
PADDED_RHS_SHAPE = (4, 6, 15)
PADDED_OUT_SHAPE = (4, 8, 15)
MESH_AXES = (("x", 2), ("y", 3))
WIRE_BYTES = 128  # received by the busiest device
AXES = ("x", "y")  # mesh axes that number the devices


def lhs_box(position):
    """Tensor range (low, high), per dimension, of the lhs shard at a position."""
    lo0 = position // 3 * 2
    lo2 = position % 3 * 2
    return lo0, lo0 + 2, 0, 8, lo2, lo2 + 2


def rhs_box(position):
    """Tensor range (low, high), per dimension, of the rhs shard at a position."""
    lo0 = position // 3 * 2
    lo2 = position % 3 * 5
    return lo0, lo0 + 2, 0, 6, lo2, min(lo2 + 5, 13)


def out_box(position):
    """Tensor range (low, high), per dimension, of the out shard at a position."""
    lo0 = position // 3 * 2
    lo2 = position % 3 * 5
    return lo0, lo0 + 2, 0, 8, lo2, min(lo2 + 5, 13)


_LHS = Sharded(IDS, lhs_box, PADDED_LHS_SHAPE, MESH_AXES, P("x", None, "y"))
_RHS = Sharded(IDS, rhs_box, PADDED_RHS_SHAPE, MESH_AXES, P("x", None, "y"))
_OUT = Sharded(IDS, out_box, PADDED_OUT_SHAPE, MESH_AXES, P("x", None, "y"))


def _multiply(a, b):
    """Return a device's shard of the product, given its operand shards; called inside shard_map."""
    # 1. lhs, all_gather over "y": [{"x"}, {}, {"y"}] -> [{"x"}, {}, {}]
    a = lax.all_gather(a, "y", axis=2, tiled=True)
    # 2. Each device multiplies 2 x 8 x 6 by 2 x 6 x 5, 960 flops
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
    short=(2,),
    padding=Padding,
)
matmul, pad_lhs, pad_rhs, unpad = _HOST.matmul, _HOST.pad_lhs, _HOST.pad_rhs, _HOST.unpad
lhs_sharding, rhs_sharding, out_sharding = _LHS.on, _RHS.on, _OUT.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
