"""Multiplies float32[8, 8] by [8, 4] over 4 devices.

C[i, k] = sum over j of A[i, j] * B[j, k], on <["i"=4]>.
lhs: [{"i"}, {}], shards of 2 x 8.
rhs: [{"i"}, {}], shards of 2 x 4.
out: [{"i"}, {}], shards of 2 x 4.

Along "i", case 2: lhs is split along i, rhs is split along its contracting dimension j.

Steps, with the bytes that each brings to the busiest device:
    1. Each device multiplies 2 x 8 by 8 x 4, 128 flops, while parts travel both ways round rings:
        rhs, all_gather over "i": [{"i"}, {}] -> [{}, {}]; 96 bytes

The busiest device receives 96 bytes.
A device sums its products in float32.

    device  lhs              rhs              out
    0       [0, 2) x [0, 8)  [0, 2) x [0, 4)  [0, 2) x [0, 4)
    1       [2, 4) x [0, 8)  [2, 4) x [0, 4)  [2, 4) x [0, 4)
    2       [4, 6) x [0, 8)  [4, 6) x [0, 4)  [4, 6) x [0, 4)
    3       [6, 8) x [0, 8)  [6, 8) x [0, 4)  [6, 8) x [0, 4)

Emitted by
    shardwright emit manifest.json --name matmul_gather_ring  # in the parent folder
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.jax_xla` in the folder that contains FOLDER")
if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from .._support import require
from .._support.jax_matmul import ArrayMatmul
from .._support.jax_meshes import Sharded

require("jax_xla", "89900a20de0aba33", __name__)

__all__ = ["lhs_sharding", "matmul", "out_sharding", "pad_lhs", "pad_rhs", "rhs_sharding", "unpad"]

LHS_SHAPE = (8, 8)
RHS_SHAPE = (8, 4)
OUT_SHAPE = (8, 4)
DTYPE = OUT_DTYPE = "float32"
MESH = '<["i"=4]>'
LHS = '[{"i"}, {}]'
RHS = '[{"i"}, {}]'
OUT = '[{"i"}, {}]'
IDS = range(4)  # by mesh position
PADDED_LHS_SHAPE = LHS_SHAPE
PADDED_RHS_SHAPE = RHS_SHAPE
PADDED_OUT_SHAPE = OUT_SHAPE
MESH_AXES = (("i", 4),)
WIRE_BYTES = 96  # received by the busiest device
AXES = "i"  # mesh axes that number the devices


def lhs_box(position):
    """Tensor range (low, high), per dimension, of the lhs shard at a position."""
    lo0 = position * 2
    return lo0, lo0 + 2, 0, 8


def rhs_box(position):
    """Tensor range (low, high), per dimension, of the rhs shard at a position."""
    lo0 = position * 2
    return lo0, lo0 + 2, 0, 4


def out_box(position):
    """Tensor range (low, high), per dimension, of the out shard at a position."""
    lo0 = position * 2
    return lo0, lo0 + 2, 0, 4


_LHS = Sharded(IDS, lhs_box, PADDED_LHS_SHAPE, MESH_AXES, P("i", None))
_RHS = Sharded(IDS, rhs_box, PADDED_RHS_SHAPE, MESH_AXES, P("i", None))
_OUT = Sharded(IDS, out_box, PADDED_OUT_SHAPE, MESH_AXES, P("i", None))


def _multiply(a, b):
    """Return a device's shard of the product, given its operand shards; called inside shard_map."""
    # 1. Each device multiplies 2 x 8 by 8 x 4, 128 flops, while parts travel both ways round rings:
    #    rhs, all_gather over "i": [{"i"}, {}] -> [{}, {}]
    me = lax.axis_index("i")
    up = [(i, (i + 1) % 4) for i in range(4)]
    down = [(i, (i - 1) % 4) for i in range(4)]
    b_up, b_down = jnp.split(b, 2, axis=0)

    def added(c, turn, b_up, b_down):
        """Return the sum with the product of parts from so many devices before and behind."""
        start = (me - turn) % 4 * 2
        own = lax.dynamic_slice_in_dim(a, start, 1, axis=1)
        c += jnp.matmul(own, b_up, preferred_element_type=jnp.float32)
        start = (me + turn) % 4 * 2 + 1
        own = lax.dynamic_slice_in_dim(a, start, 1, axis=1)
        c += jnp.matmul(own, b_down, preferred_element_type=jnp.float32)
        return c

    c = added(jnp.zeros((2, 4), jnp.float32), 0, b_up, b_down)
    for turn in range(1, 4):
        b_up = lax.ppermute(b_up, "i", up)
        b_down = lax.ppermute(b_down, "i", down)
        c = added(c, turn, b_up, b_down)
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
