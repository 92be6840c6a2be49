"""Reshards int32[4, 6] over 6 devices: [{}, {"x", "y"}] -> [{}, {"x"}].

Source: [{}, {"x", "y"}] on <["x"=2, "y"=3]>, shards of 4 x 1.
    d1(x, y)[k0, k1] -> t[k0, x * 3 + k1 + y]
Target: [{}, {"x"}] on <["x"=2, "y"=3]>, shards of 4 x 3.
    d2(x, y)[k0, k1] -> t[k0, x * 3 + k1]

Along dimension 1, source shards of 1 meet target shards of 3: 3 source shards for each target
    shard.
No device receives over 32 bytes or sends over 32, the least possible.
All devices together receive 192.

Ranges along dimension 1:

    device  before  after   receives
    0       [0, 1)  [0, 3)  [1, 2) from 1, [2, 3) from 2
    1       [1, 2)  [0, 3)  [0, 1) from 0, [2, 3) from 2
    2       [2, 3)  [0, 3)  [0, 1) from 0, [1, 2) from 1
    3       [3, 4)  [3, 6)  [4, 5) from 4, [5, 6) from 5
    4       [4, 5)  [3, 6)  [3, 4) from 3, [5, 6) from 5
    5       [5, 6)  [3, 6)  [3, 4) from 3, [4, 5) from 4

Form: slots; XLA packs thin tiles densely into slots, and unpacks them.
The wire carries 32.000 times the bytes of the tiles.
The busiest device receives 1,024 bytes, padding included.
HBM traffic is 138.67 times the least possible.
The staging area has 2,048 bytes of HBM.

Emitted by
    shardwright emit --mesh x=2,y=3 --shape 4x6 --dtype int32 --source '[{}, {"x", "y"}]' --target '[{}, {"x"}]' --name gather_minor_2x3
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.pallas_tpu` in the folder that contains FOLDER")
if __name__ == "__main__":  # one spare device, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=7")

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

SHAPE = (4, 6)
DTYPE = "int32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=3]>'
SOURCE = '[{}, {"x", "y"}]'
TARGET = '[{}, {"x"}]'
LOCAL_SOURCE_SHAPE = (4, 1)
LOCAL_TARGET_SHAPE = (4, 3)
SOURCE_IDS = TARGET_IDS = range(6)  # by mesh position
PLAN = "87451f1efdc7114c"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("x", 2), ("y", 3))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 1024  # received by the busiest device, padding included
COLLECTIVE_ID = 19476


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    return 0, 4, position, position + 1


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo1 = div(position, 3) * 3
    return 0, 4, lo1, lo1 + 3


def receiver(sender, number):
    """The device that the tile of a number of a source shard goes to."""
    return div(sender, 3) * 3 + rem(number + sender, 3)


def sender(receiver, number):
    """The device that the tile of a number of a target shard comes from."""
    return div(receiver, 3) * 3 + number


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P(None, ("x", "y")))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P(None, "x"))
PEERS = Permuted(_SOURCE, _TARGET, sender, receiver, 3)


TILE = (4, 1)  # the extents of every tile
# A slot: granules of 512 bytes, ceil(4 / 128).
SLOT = (1, 1, 128)
# The order of pushes: successive receivers are far apart, so that all links are busy.
ROUNDS = (0, 1, 2)


def in_source(peer):
    """Return the start, in a source shard, of the tile for a device."""
    return (0, 0)


def in_target(me):
    """Return the start, in a target shard, of the tile from a device."""
    return (0, rem(me, 3))


def _kernel(x, y, sent, received):
    """Push this device's slots, x, to the slots of their receivers, y.

    Slot n of x has the tile for receiver n, slot n of y the tile from sender n.

    DMA semaphores: `sent` counts bytes leaving x, `received` bytes arriving in y.
    """
    me = lax.axis_index(("x", "y"))
    there = rem(me, 3)  # the index of its tiles at their receivers
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

    each(3, tell)
    each(3, hear)
    for number in ROUNDS:
        push(number)
    wait_for(y, received)  # 1,536 bytes: its tiles, pushed by others or kept here
    each(3, leave)


def _moved(x, call):
    """Return the target shard of a source shard: XLA packs tiles, and unpacks those that arrive."""
    me = lax.axis_index(("x", "y"))

    def pack(number):
        start = map(jnp.int32, in_source(receiver(me, number)))
        tile = lax.dynamic_slice(x, [*start], TILE).reshape(-1)
        return jnp.pad(tile, (0, 124)).reshape(SLOT)

    def unpack(number, y):
        start = map(jnp.int32, in_target(sender(me, number)))
        slot = lax.dynamic_index_in_dim(slots, number).reshape(-1)[:4]
        return lax.dynamic_update_slice(y, slot.reshape(TILE), [*start])

    slots = lax.map(pack, jnp.arange(3, dtype=jnp.int32))
    slots = call.pushed(_kernel, slots, slots.shape, [pltpu.SemaphoreType.DMA] * 2)
    y = jnp.zeros((4, 3), x.dtype)
    return lax.fori_loop(np.int32(0), np.int32(3), unpack, y)


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
