"""Reshards int32[4, 4, 4] over 16 devices: [{"w", "z"}, {}, {"x", "y"}] -> [{"x"}, {"y", "z"}, {}].

Source: [{"w", "z"}, {}, {"x", "y"}] on <["x"=2, "y"=2, "z"=2, "w"=2]>, shards of 1 x 4 x 1.
    d1(x, y, z, w)[k0, k1, k2] -> t[w * 2 + k0 + z, k1, x * 2 + k2 + y]
Target: [{"x"}, {"y", "z"}, {}] on <["x"=2, "y"=2, "z"=2, "w"=2]>, shards of 2 x 1 x 4.
    d2(x, y, z, w)[k0, k1, k2] -> t[x * 2 + k0, y * 2 + k1 + z, k2]

Along dimension 0, source shards of 1 meet target shards of 2: 2 source shards for each target
    shard.
Along dimension 1, source shards of 4 meet target shards of 1: 1 source shard for each target shard.
Along dimension 2, source shards of 1 meet target shards of 4: 4 source shards for each target
    shard.
No device receives over 32 bytes or sends over 32, the least possible.
All devices together receive 480.

A device sends the intersection of its range before and the receiver's after.

    device  before                    after                     receives
    0       [0, 1) x [0, 4) x [0, 1)  [0, 2) x [0, 1) x [0, 4)  from 2, 4, 6, 8, 10, 12, 14
    1       [2, 3) x [0, 4) x [0, 1)  [0, 2) x [0, 1) x [0, 4)  from 0, 2, 4, 6, 8, 10, 12, 14
    2       [1, 2) x [0, 4) x [0, 1)  [0, 2) x [1, 2) x [0, 4)  from 0, 4, 6, 8, 10, 12, 14
    3       [3, 4) x [0, 4) x [0, 1)  [0, 2) x [1, 2) x [0, 4)  from 0, 2, 4, 6, 8, 10, 12, 14
    4       [0, 1) x [0, 4) x [1, 2)  [0, 2) x [2, 3) x [0, 4)  from 0, 2, 6, 8, 10, 12, 14
    5       [2, 3) x [0, 4) x [1, 2)  [0, 2) x [2, 3) x [0, 4)  from 0, 2, 4, 6, 8, 10, 12, 14
    6       [1, 2) x [0, 4) x [1, 2)  [0, 2) x [3, 4) x [0, 4)  from 0, 2, 4, 8, 10, 12, 14
    7       [3, 4) x [0, 4) x [1, 2)  [0, 2) x [3, 4) x [0, 4)  from 0, 2, 4, 6, 8, 10, 12, 14
    8       [0, 1) x [0, 4) x [2, 3)  [2, 4) x [0, 1) x [0, 4)  from 1, 3, 5, 7, 9, 11, 13, 15
    9       [2, 3) x [0, 4) x [2, 3)  [2, 4) x [0, 1) x [0, 4)  from 1, 3, 5, 7, 11, 13, 15
    10      [1, 2) x [0, 4) x [2, 3)  [2, 4) x [1, 2) x [0, 4)  from 1, 3, 5, 7, 9, 11, 13, 15
    11      [3, 4) x [0, 4) x [2, 3)  [2, 4) x [1, 2) x [0, 4)  from 1, 3, 5, 7, 9, 13, 15
    12      [0, 1) x [0, 4) x [3, 4)  [2, 4) x [2, 3) x [0, 4)  from 1, 3, 5, 7, 9, 11, 13, 15
    13      [2, 3) x [0, 4) x [3, 4)  [2, 4) x [2, 3) x [0, 4)  from 1, 3, 5, 7, 9, 11, 15
    14      [1, 2) x [0, 4) x [3, 4)  [2, 4) x [3, 4) x [0, 4)  from 1, 3, 5, 7, 9, 11, 13, 15
    15      [3, 4) x [0, 4) x [3, 4)  [2, 4) x [3, 4) x [0, 4)  from 1, 3, 5, 7, 9, 11, 13

Form: slots; XLA packs thin tiles densely into slots, and unpacks them.
The wire carries 128.000 times the bytes of the tiles.
The busiest device receives 4,096 bytes, padding included.
HBM traffic is 448.00 times the least possible.
The staging area has 6,144 bytes of HBM.

Emitted by
    shardwright emit --mesh x=2,y=2,z=2,w=2 --shape 4x4x4 --dtype int32 --source '[{"w", "z"}, {}, {"x", "y"}]' --target '[{"x"}, {"y", "z"}, {}]' --name move_four_axes
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.pallas_tpu` in the folder that contains FOLDER")
if __name__ == "__main__":  # one spare device, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=17")

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

SHAPE = (4, 4, 4)
DTYPE = "int32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=2, "z"=2, "w"=2]>'
SOURCE = '[{"w", "z"}, {}, {"x", "y"}]'
TARGET = '[{"x"}, {"y", "z"}, {}]'
LOCAL_SOURCE_SHAPE = (1, 4, 1)
LOCAL_TARGET_SHAPE = (2, 1, 4)
SOURCE_IDS = TARGET_IDS = range(16)  # by mesh position
PLAN = "a2e1c87034338e6c"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("x", 2), ("y", 2), ("z", 2), ("w", 2))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 4096  # received by the busiest device, padding included
COLLECTIVE_ID = 6376


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = rem(position, 2) * 2 + rem(div(position, 2), 2)
    lo2 = div(position, 4)
    return lo0, lo0 + 1, 0, 4, lo2, lo2 + 1


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = div(position, 8) * 2
    lo1 = rem(div(position, 2), 4)
    return lo0, lo0 + 2, lo1, lo1 + 1, 0, 4


def receiver(sender, number):
    """The device that the tile of a number of a source shard goes to."""
    b0 = rem(sender, 2)
    b1 = rem(div(number, 2) + rem(div(sender, 2), 4), 4)
    return b0 * 8 + b1 * 2 + rem(number + sender, 2)


def sender(receiver, number):
    """The device that the tile of a number of a target shard comes from."""
    return rem(number, 4) * 4 + div(number, 4) * 2 + div(receiver, 8)


_SOURCE = Sharded(
    SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P(("w", "z"), None, ("x", "y"))
)
_TARGET = Sharded(
    TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("x", ("y", "z"), None)
)
PEERS = Permuted(_SOURCE, _TARGET, sender, receiver, 8)


TILE = (1, 1, 1)  # the extents of every tile
# A slot: granules of 512 bytes, ceil(1 / 128).
SLOT = (1, 1, 128)
# The order of pushes: successive receivers are far apart, so that all links are busy.
ROUNDS = (0, 3, 6, 1, 4, 7, 2, 5)


def in_source(peer):
    """Return the start, in a source shard, of the tile for a device."""
    return (0, rem(div(peer, 2), 4), 0)


def in_target(me):
    """Return the start, in a target shard, of the tile from a device."""
    return (rem(div(me, 2), 2), 0, div(me, 4))


def _kernel(x, y, sent, received):
    """Push this device's slots, x, to the slots of their receivers, y.

    Slot n of x has the tile for receiver n, slot n of y the tile from sender n.

    DMA semaphores: `sent` counts bytes leaving x, `received` bytes arriving in y.
    """
    me = lax.axis_index(("x", "y", "z", "w"))
    there = rem(div(me, 2), 2) * 4 + div(me, 4)  # the index of its tiles at their receivers
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

    each(8, tell)
    each(8, hear)
    for number in ROUNDS:
        push(number)
    wait_for(y, received)  # 4,096 bytes: its tiles, pushed by others or kept here
    each(8, leave)


def _moved(x, call):
    """Return the target shard of a source shard: XLA packs tiles, and unpacks those that arrive."""
    me = lax.axis_index(("x", "y", "z", "w"))

    def pack(number):
        start = map(jnp.int32, in_source(receiver(me, number)))
        tile = lax.dynamic_slice(x, [*start], TILE).reshape(-1)
        return jnp.pad(tile, (0, 127)).reshape(SLOT)

    def unpack(number, y):
        start = map(jnp.int32, in_target(sender(me, number)))
        slot = lax.dynamic_index_in_dim(slots, number).reshape(-1)[:1]
        return lax.dynamic_update_slice(y, slot.reshape(TILE), [*start])

    slots = lax.map(pack, jnp.arange(8, dtype=jnp.int32))
    slots = call.pushed(_kernel, slots, slots.shape, [pltpu.SemaphoreType.DMA] * 2)
    y = jnp.zeros((2, 1, 4), x.dtype)
    return lax.fori_loop(np.int32(0), np.int32(8), unpack, y)


_PROGRAM = Thin(_kernel, _moved, PEERS, SLOT, collective_id=COLLECTIVE_ID)
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
