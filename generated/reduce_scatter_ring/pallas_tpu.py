"""Reshards float32[8192, 1024] over 4 devices: [{}, {}], unreduced={"x"} -> [{"x"}, {}].

Source: [{}, {}], unreduced={"x"} on <["x"=4]>, shards of 8192 x 1024.
    d1(x)[k0, k1] -> t[k0, k1]
Target: [{"x"}, {}] on <["x"=4]>, shards of 2048 x 1024.
    d2(x)[k0, k1] -> t[x * 2048 + k0, k1]

No device receives over 25165824 bytes or sends over 25165824, the least possible.
All devices together receive 100663296.

    device  source                 target
    0       [0, 8192) x [0, 1024)  [0, 2048) x [0, 1024)
    1       [0, 8192) x [0, 1024)  [2048, 4096) x [0, 1024)
    2       [0, 8192) x [0, 1024)  [4096, 6144) x [0, 1024)
    3       [0, 8192) x [0, 1024)  [6144, 8192) x [0, 1024)

Form: ring; partial results go from device to device; each device combines its term.
Rings along "x" move 32 bits per element; every device receives 25,165,824 bytes.
Along "x" a ring visits even coordinates upwards, then odd ones downwards.
The first 1,048,576 elements of a part travel upwards: their terms are combined
in ring order, from the device after the part's keeper round to the keeper. The others
travel downwards.

Emitted by
    shardwright emit --mesh x=4 --shape 8192x1024 --dtype float32 --source '[{}, {}], unreduced={"x"}' --target '[{"x"}, {}]' --backends pallas_tpu --topology torus:2x2,wrap=0x0,bandwidth=5e+10,latency=1e-06,powers_of_two=1,ragged=512,memory=8.19e+11 --name reduce_scatter_ring
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.pallas_tpu` in the folder that contains FOLDER")
if __name__ == "__main__":  # one spare device, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=5")

import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

from .._support import require
from .._support.jax_host import OneOrder
from .._support.jax_meshes import Sharded
from .._support.jax_terms import Terms
from .._support.pallas_peers import LOGICAL, div, each, rem, remote_copy
from .._support.pallas_ring import Ring, Round, put

require("pallas_tpu", "24fecbfefb230f2f", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (8192, 1024)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=4]>'
SOURCE = '[{}, {}], unreduced={"x"}'
TARGET = '[{"x"}, {}]'
LOCAL_SOURCE_SHAPE = (1, 8192, 1024)
LOCAL_TARGET_SHAPE = (2048, 1024)
SOURCE_IDS = TARGET_IDS = range(4)  # by mesh position
PLAN = "98c8923312d58532"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("x", 4),)
# The shapes of global arrays: dimension 0 numbers terms.
PADDED_SOURCE_SHAPE = (4, 8192, 1024)
PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 25165824  # received by the busiest device, padding included
COLLECTIVE_ID = 2352


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    return position, position + 1, 0, 8192, 0, 1024


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position * 2048
    return lo0, lo0 + 2048, 0, 1024


_SOURCE = Sharded(
    SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("x", None, None), terms=True
)
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("x", None))


# Coordinates along "x" in upward ring order: 0, 2, 3, 1.
RING0 = Round(1, 4, folded=True)
UP, DOWN = np.int32(0), np.int32(1)


def ring_kernel(x, y, slots, sums, terms, received, left, loaded, free):
    """Combine x, this device's terms of all parts, ring after ring; y gets the result of each ring.

    x, y: in HBM [direction, chunk, 1024, 128]; a half of each part goes in each direction.
    In VMEM, 6,291,456 bytes, [direction, turn, 1024, 128], two turns each:
    terms  own chunks; `loaded` counts loads from x
    slots  sums sent by the upstream device; `received` counts them
    sums   sums leaving for the downstream slots or for y; `left` counts them
    free   for each ring and direction, the number of free downstream slots
    """
    me = lax.axis_index("x")
    vmem = slots, sums, terms, received, left, loaded, free
    # From here on the neighbours may write to the slots and the counters of this device.
    barrier = pltpu.get_barrier_semaphore()
    for peer in RING0.neighbours(me):
        pl.semaphore_signal(barrier, 1, device_id=peer, device_id_type=LOGICAL)
    pl.semaphore_wait(barrier, 2)  # 1 from each neighbour
    go_round_ring0(me, x, y, *vmem)


def go_round_ring0(me, x, y, slots, sums, terms, received, left, loaded, free):
    """Run RING0: reduce 4 parts of 8 chunks each, from chunk 0 of x on, to
    one part, from chunk 0 of y on.

    A chunk takes 4 steps. In each, the device combines the arrived sum of a part with its own
    term: first for the part with the longest way to go, last for the part that it keeps.
    """
    place, (after, before) = RING0.place(me), RING0.neighbours(me)
    downstream, upstream = (after, before), (before, after)  # by direction

    def load(way, step):
        """Return the copy of this device's chunk for a step, 524,288 bytes."""
        at, turn = rem(step, 4), rem(step, 2)
        part = rem(place + (7 - at if way == UP else 1 + at), 4)
        own = x.at[way, part * 8 + div(step, 4)]
        return pltpu.make_async_copy(own, terms.at[way, turn], loaded.at[way, turn])

    def leaves(way, turn):
        """Return the copy to wait for until the sum of a turn, 524,288 bytes, has left."""
        total = sums.at[way, turn]
        return pltpu.make_async_copy(total, total, left.at[way, turn])

    def allow(way, count):
        """Let the upstream device send more sums, into slots that are free. The last need none."""
        slots_free, to = free.at[np.int32(0), way], upstream[way]
        pl.semaphore_signal(slots_free, count, device_id=to, device_id_type=LOGICAL)

    def advance(way, step):
        """Take one step in one direction."""
        at, turn = rem(step, 4), rem(step, 2)
        sent = div(step, 4) * 3 + at  # number of sums sent before
        this, last = rem(sent, 2), rem(sent + 1, 2)  # slots of the current and the previous sum
        own, total, partial = terms.at[way, turn], sums.at[way, turn], slots.at[way, last]
        load(way, step).wait()  # started in the previous step
        pl.when(step < 31)(lambda: load(way, step + 1).start())
        pl.when(step >= 2)(lambda: leaves(way, turn).wait())  # the sum of two steps earlier

        pl.when(at == 0)(lambda: put(total, "sum", own))

        @pl.when(at > 0)
        def combine():
            # Sent by the upstream device in the previous step, 524,288 bytes.
            pltpu.make_async_copy(partial, partial, received.at[way, last]).wait()
            put(total, "sum", partial, own)
            pl.when(sent < 23)(lambda: allow(way, 1))

        @pl.when(at < 3)
        def send():
            pl.semaphore_wait(free.at[np.int32(0), way], 1)  # downstream has read that slot
            there, arrived, to = slots.at[way, this], received.at[way, this], downstream[way]
            remote_copy(total, there, left.at[way, turn], arrived, to).start()

        kept = pltpu.make_async_copy(total, y.at[way, div(step, 4)], left.at[way, turn])
        pl.when(at == 3)(kept.start)

    def advance_both(step):
        advance(UP, step)
        advance(DOWN, step)

    for way in (UP, DOWN):
        allow(way, 2)  # all slots are free
        load(way, np.int32(0)).start()
    each(32, advance_both)
    for way in (UP, DOWN):
        leaves(way, np.int32(0)).wait()
        leaves(way, np.int32(1)).wait()


_PROGRAM = Ring(
    ring_kernel,
    (RING0,),
    Terms("sum", "sum"),
    rows=1024,
    chunks=8,
    collective_id=COLLECTIVE_ID,
    powers_of_two=True,
)
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
