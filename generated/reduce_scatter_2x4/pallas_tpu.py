"""Reshards bfloat16[64, 48] over 8 devices: [{}, {"model"}], unreduced={"data"} -> [{"data"},
    {"model"}].

Source: [{}, {"model"}], unreduced={"data"} on <["data"=4, "model"=2]>, shards of 64 x 24.
    d1(data, model)[k0, k1] -> t[k0, model * 24 + k1]
Target: [{"data"}, {"model"}] on <["data"=4, "model"=2]>, shards of 16 x 24.
    d2(data, model)[k0, k1] -> t[data * 16 + k0, model * 24 + k1]

Along dimension 0, source shards of 64 meet target shards of 16: 1 source shard for each target
    shard.
Along dimension 1, source shards of 24 meet target shards of 24: 1 source shard for each target
    shard.
A value has 4 terms, along "data". A receiver adds them up in the order of their coordinates, as
    float32 that is rounded once.
No device receives over 2304 bytes or sends over 2304, the least possible.
All devices together receive 18432.

    device  before              after                receives
    0       [0, 64) x [0, 24)   [0, 16) x [0, 24)    [0, 16) x [0, 24) from 2, 4, 6
    1       [0, 64) x [24, 48)  [0, 16) x [24, 48)   [0, 16) x [24, 48) from 3, 5, 7
    2       [0, 64) x [0, 24)   [16, 32) x [0, 24)   [16, 32) x [0, 24) from 0, 4, 6
    3       [0, 64) x [24, 48)  [16, 32) x [24, 48)  [16, 32) x [24, 48) from 1, 5, 7
    4       [0, 64) x [0, 24)   [32, 48) x [0, 24)   [32, 48) x [0, 24) from 0, 2, 6
    5       [0, 64) x [24, 48)  [32, 48) x [24, 48)  [32, 48) x [24, 48) from 1, 3, 7
    6       [0, 64) x [0, 24)   [48, 64) x [0, 24)   [48, 64) x [0, 24) from 0, 2, 4
    7       [0, 64) x [24, 48)  [48, 64) x [24, 48)  [48, 64) x [24, 48) from 1, 3, 5

Form: slots; XLA packs thin tiles densely into slots, and unpacks them.
The wire carries 1.333 times the bytes of the tiles.
The busiest device receives 3,072 bytes, padding included.
HBM traffic is 16.67 times the least possible.
Then XLA reduces: it reads 4 terms of a target shard, and writes it.
The staging area has 8,192 bytes of HBM.

Emitted by
    shardwright emit --mesh data=4,model=2 --shape 64x48 --dtype bfloat16 --source '[{}, {"model"}], unreduced={"data"}' --target '[{"data"}, {"model"}]' --name reduce_scatter_2x4
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
from .._support.jax_terms import Terms
from .._support.pallas_peers import div, each, operand, rem, remote_copy, signal, wait_for
from .._support.pallas_permuted import Permuted
from .._support.pallas_terms import ReducedTerms, Stacked
from .._support.pallas_thin import Thin

require("pallas_tpu", "24fecbfefb230f2f", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (64, 48)
DTYPE = "bfloat16"
SOURCE_MESH = TARGET_MESH = '<["data"=4, "model"=2]>'
SOURCE = '[{}, {"model"}], unreduced={"data"}'
TARGET = '[{"data"}, {"model"}]'
LOCAL_SOURCE_SHAPE = (1, 64, 24)
LOCAL_TARGET_SHAPE = (16, 24)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "a5afa9e5d6b5a1a4"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("data", 4), ("model", 2))
# The shapes of global arrays: dimension 0 numbers terms.
PADDED_SOURCE_SHAPE = (4, 64, 48)
PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 3072  # received by the busiest device, padding included
COLLECTIVE_ID = 9176


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = div(position, 2)
    lo2 = rem(position, 2) * 24
    return lo0, lo0 + 1, 0, 64, lo2, lo2 + 24


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = div(position, 2) * 16
    lo1 = rem(position, 2) * 24
    return lo0, lo0 + 16, lo1, lo1 + 24


def target_terms(position):
    """Ranges (low, high) of terms, then of the tensor, of the target shard at a position."""
    lo1 = div(position, 2) * 16
    lo2 = rem(position, 2) * 24
    return 0, 4, lo1, lo1 + 16, lo2, lo2 + 24


def receiver(sender, number):
    """The device that the tile of a number of a source shard goes to."""
    return rem(div(sender, 2) + number, 4) * 2 + rem(sender, 2)


def sender(receiver, number):
    """The device that the tile of a number of a target shard comes from."""
    return number * 2 + rem(receiver, 2)


_SOURCE = Sharded(
    SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("data", None, "model"), terms=True
)
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("data", "model"))
# As kernels have them: of a value a source shard has a term, a target all.
SOURCE_TERMS = Stacked(SOURCE_IDS, source_box, (1, 64, 24), SOURCE_AXES, 1)
TARGET_TERMS = Stacked(TARGET_IDS, target_terms, (4, 16, 24), TARGET_AXES, 1)
PEERS = Permuted(SOURCE_TERMS, TARGET_TERMS, sender, receiver, 4)


TILE = (1, 16, 24)  # the extents of every tile
# A slot: granules of 512 bytes, ceil(384 / 256).
SLOT = (2, 2, 128)
# The order of pushes: successive receivers are far apart, so that all links are busy.
ROUNDS = (0, 3, 2, 1)


def in_source(peer):
    """Return the start, in a source shard, of the tile for a device."""
    return (0, div(peer, 2) * 16, 0)


def in_target(me):
    """Return the start, in a target shard, of the tile from a device."""
    return (div(me, 2), 0, 0)


def _kernel(x, y, sent, received):
    """Push this device's slots, x, to the slots of their receivers, y.

    Slot n of x has the tile for receiver n, slot n of y the tile from sender n.

    DMA semaphores: `sent` counts bytes leaving x, `received` bytes arriving in y.
    """
    me = lax.axis_index(("data", "model"))
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
        pl.when(sends)(lambda: wait_for(x.at[operand(0)], sent))  # 1,024 bytes of each push

    each(4, tell)
    each(4, hear)
    for number in ROUNDS:
        push(number)
    wait_for(y, received)  # 4,096 bytes: its tiles, pushed by others or kept here
    each(4, leave)


def _moved(x, call):
    """Return the target shard of a source shard: XLA packs tiles, and unpacks those that arrive."""
    me = lax.axis_index(("data", "model"))

    def pack(number):
        start = map(jnp.int32, in_source(receiver(me, number)))
        tile = lax.dynamic_slice(x, [*start], TILE).reshape(-1)
        return jnp.pad(tile, (0, 128)).reshape(SLOT)

    def unpack(number, y):
        start = map(jnp.int32, in_target(sender(me, number)))
        slot = lax.dynamic_index_in_dim(slots, number).reshape(-1)[:384]
        return lax.dynamic_update_slice(y, slot.reshape(TILE), [*start])

    slots = lax.map(pack, jnp.arange(4, dtype=jnp.int32))
    slots = call.pushed(_kernel, slots, slots.shape, [pltpu.SemaphoreType.DMA] * 2)
    y = jnp.zeros((4, 16, 24), x.dtype)
    return lax.fori_loop(np.int32(0), np.int32(4), unpack, y)


_CARRIER = Thin(_kernel, _moved, PEERS, SLOT, collective_id=COLLECTIVE_ID, bits="always")
_PROGRAM = ReducedTerms(_CARRIER, SOURCE_TERMS, TARGET_TERMS, Terms("sum", "sum"), reduces=True)
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
