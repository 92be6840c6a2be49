"""Reshards float32[16, 16, 16] over 8 devices: [{"x"}, {"y"}, {}] -> [{}, {"x"}, {"y"}].

Source: [{"x"}, {"y"}, {}] on <["x"=4, "y"=2]>, shards of 4 x 8 x 16.
    d1(x, y)[k0, k1, k2] -> t[x * 4 + k0, y * 8 + k1, k2]
Target: [{}, {"x"}, {"y"}] on <["x"=4, "y"=2]>, shards of 16 x 4 x 8.
    d2(x, y)[k0, k1, k2] -> t[k0, x * 4 + k1, y * 8 + k2]

Along dimension 0, source shards of 4 meet target shards of 16: 4 source shards for each target
    shard.
Along dimension 1, source shards of 8 meet target shards of 4: 1 source shard for each target shard.
Along dimension 2, source shards of 16 meet target shards of 8: 1 source shard for each target
    shard.
No device receives over 2048 bytes or sends over 2048, the least possible.
All devices together receive 14336.

    device  before                        after
    0       [0, 4) x [0, 8) x [0, 16)     [0, 16) x [0, 4) x [0, 8)
            receives [4, 8) x [0, 4) x [0, 8) from 2, [8, 12) x [0, 4) x [0, 8) from 4,
            [12, 16) x [0, 4) x [0, 8) from 6
    1       [0, 4) x [8, 16) x [0, 16)    [0, 16) x [0, 4) x [8, 16)
            receives [0, 4) x [0, 4) x [8, 16) from 0, [4, 8) x [0, 4) x [8, 16) from 2,
            [8, 12) x [0, 4) x [8, 16) from 4, [12, 16) x [0, 4) x [8, 16) from 6
    2       [4, 8) x [0, 8) x [0, 16)     [0, 16) x [4, 8) x [0, 8)
            receives [0, 4) x [4, 8) x [0, 8) from 0, [8, 12) x [4, 8) x [0, 8) from 4,
            [12, 16) x [4, 8) x [0, 8) from 6
    3       [4, 8) x [8, 16) x [0, 16)    [0, 16) x [4, 8) x [8, 16)
            receives [0, 4) x [4, 8) x [8, 16) from 0, [4, 8) x [4, 8) x [8, 16) from 2,
            [8, 12) x [4, 8) x [8, 16) from 4, [12, 16) x [4, 8) x [8, 16) from 6
    4       [8, 12) x [0, 8) x [0, 16)    [0, 16) x [8, 12) x [0, 8)
            receives [0, 4) x [8, 12) x [0, 8) from 1, [4, 8) x [8, 12) x [0, 8) from 3,
            [8, 12) x [8, 12) x [0, 8) from 5, [12, 16) x [8, 12) x [0, 8) from 7
    5       [8, 12) x [8, 16) x [0, 16)   [0, 16) x [8, 12) x [8, 16)
            receives [0, 4) x [8, 12) x [8, 16) from 1, [4, 8) x [8, 12) x [8, 16) from 3,
            [12, 16) x [8, 12) x [8, 16) from 7
    6       [12, 16) x [0, 8) x [0, 16)   [0, 16) x [12, 16) x [0, 8)
            receives [0, 4) x [12, 16) x [0, 8) from 1, [4, 8) x [12, 16) x [0, 8) from 3,
            [8, 12) x [12, 16) x [0, 8) from 5, [12, 16) x [12, 16) x [0, 8) from 7
    7       [12, 16) x [8, 16) x [0, 16)  [0, 16) x [12, 16) x [8, 16)
            receives [0, 4) x [12, 16) x [8, 16) from 1, [4, 8) x [12, 16) x [8, 16) from 3,
            [8, 12) x [12, 16) x [8, 16) from 5

Form: slots; XLA packs thin tiles densely into slots, and unpacks them.
The wire carries 1.000 times the bytes of the tiles.
The busiest device receives 2,048 bytes, padding included.
HBM traffic is 34.50 times the least possible.
The staging area has 4,096 bytes of HBM.

Emitted by
    shardwright emit --mesh x=4,y=2 --shape 16x16x16 --dtype float32 --source '[{"x"}, {"y"}, {}]' --target '[{}, {"x"}, {"y"}]' --name xla_15207
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.pallas_tpu` in the folder that contains FOLDER")
if __name__ == "__main__":  # one spare device, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=9")

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

from .._support import require
from .._support.jax_host import OneOrder
from .._support.jax_meshes import Sharded
from .._support.pallas_peers import div, each, operand, rem, remote_copy, signal, wait_for
from .._support.pallas_permuted import Permuted
from .._support.pallas_thin import Thin

require("pallas_tpu", "24fecbfefb230f2f", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (16, 16, 16)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=4, "y"=2]>'
SOURCE = '[{"x"}, {"y"}, {}]'
TARGET = '[{}, {"x"}, {"y"}]'
LOCAL_SOURCE_SHAPE = (4, 8, 16)
LOCAL_TARGET_SHAPE = (16, 4, 8)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "cd982f39ecda540e"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("x", 4), ("y", 2))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 2048  # received by the busiest device, padding included
COLLECTIVE_ID = 16856


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = div(position, 2) * 4
    lo1 = rem(position, 2) * 8
    return lo0, lo0 + 4, lo1, lo1 + 8, 0, 16


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo1 = div(position, 2) * 4
    lo2 = rem(position, 2) * 8
    return 0, 16, lo1, lo1 + 4, lo2, lo2 + 8


def receiver(sender, number):
    """The device that the tile of a number of a source shard goes to."""
    b1 = rem(sender, 2) * 2 + rem(div(number, 2) + div(sender, 2), 2)
    b2 = rem(rem(sender, 2) + number, 2)
    return b1 * 2 + b2


def sender(receiver, number):
    """The device that the tile of a number of a target shard comes from."""
    return number * 2 + div(receiver, 4)


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("x", "y", None))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P(None, "x", "y"))
PEERS = Permuted(_SOURCE, _TARGET, sender, receiver, 4)


TILE = (4, 4, 8)  # the extents of every tile
# A slot: granules of 512 bytes, ceil(128 / 128).
SLOT = (1, 1, 128)
# The order of pushes: successive receivers are far apart, so that all links are busy.
ROUNDS = (0, 3, 2, 1)


def in_source(peer):
    """Return the start, in a source shard, of the tile for a device."""
    return (0, rem(div(peer, 2), 2) * 4, rem(peer, 2) * 8)


def in_target(me):
    """Return the start, in a target shard, of the tile from a device."""
    return (div(me, 2) * 4, 0, 0)


def _kernel(x, y, sent, received):
    """Push this device's slots, x, to the slots of their receivers, y.

    Slot n of x has the tile for receiver n, slot n of y the tile from sender n.

    DMA semaphores: `sent` counts bytes leaving x, `received` bytes arriving in y.
    """
    me = lax.axis_index(("x", "y"))
    there = div(me, 2)  # the index of its tiles at their receivers
    barrier = pltpu.get_barrier_semaphore()

    def tell(number):  # its senders may write to y from here on
        peer = sender(me, number)
        pl.when(peer != me)(lambda: signal(barrier, peer))

    def hear(number):
        peer = receiver(me, number)
        pl.when(peer != me)(lambda: pl.semaphore_wait(barrier, 1))  # 1 from each receiver

    def push(number):
        peer = receiver(me, number)
        read, write = x.at[operand(number)], y.at[operand(there)]
        pl.when(peer != me)(lambda: remote_copy(read, write, sent, received, peer).start())
        pl.when(peer == me)(lambda: pltpu.make_async_copy(read, write, received).start())

    def leave(number):
        sends = receiver(me, number) != me
        pl.when(sends)(lambda: wait_for(x.at[operand(0)], sent))  # 512 bytes of each push

    each(4, tell)
    each(4, hear)
    for number in ROUNDS:
        push(number)
    wait_for(y, received)  # 2,048 bytes: its tiles, pushed by others or kept here
    each(4, leave)


def _moved(x, call):
    """Return the target shard of a source shard: XLA packs tiles, and unpacks those that arrive."""
    me = lax.axis_index(("x", "y"))

    def pack(number):
        start = map(jnp.int32, in_source(receiver(me, number)))
        return lax.dynamic_slice(x, [*start], TILE).reshape(SLOT)

    def unpack(number, y):
        start = map(jnp.int32, in_target(sender(me, number)))
        slot = lax.dynamic_index_in_dim(slots, number).reshape(-1)
        return lax.dynamic_update_slice(y, slot.reshape(TILE), [*start])

    slots = lax.map(pack, jnp.arange(4, dtype=jnp.int32))
    slots = call.pushed(_kernel, slots, slots.shape, [pltpu.SemaphoreType.DMA] * 2)
    y = jnp.zeros((16, 4, 8), x.dtype)
    return lax.fori_loop(np.int32(0), np.int32(4), unpack, y)


_PROGRAM = Thin(_kernel, _moved, PEERS, SLOT, collective_id=COLLECTIVE_ID, bits="interpreted")
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
