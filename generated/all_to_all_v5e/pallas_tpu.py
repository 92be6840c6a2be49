"""Reshards float32[200, 200] over 8 devices: [{"x", "y"}, {}] -> [{}, {"x", "y"}].

Source: [{"x", "y"}, {}] on <["x"=2, "y"=4]>, shards of 25 x 200.
    d1(x, y)[k0, k1] -> t[x * 100 + y * 25 + k0, k1]
Target: [{}, {"x", "y"}] on <["x"=2, "y"=4]>, shards of 200 x 25.
    d2(x, y)[k0, k1] -> t[k0, x * 100 + y * 25 + k1]

Along dimension 0, source shards of 25 meet target shards of 200: 8 source shards for each target
    shard.
Along dimension 1, source shards of 200 meet target shards of 25: 1 source shard for each target
    shard.
No device receives over 17500 bytes or sends over 17500, the least possible.
All devices together receive 140000.

A device sends the intersection of its range before and the receiver's after.

    device  before                 after                  receives
    0       [0, 25) x [0, 200)     [0, 200) x [0, 25)     from 1, 2, 3, 4, 5, 6, 7
    1       [25, 50) x [0, 200)    [0, 200) x [25, 50)    from 0, 2, 3, 4, 5, 6, 7
    2       [50, 75) x [0, 200)    [0, 200) x [50, 75)    from 0, 1, 3, 4, 5, 6, 7
    3       [75, 100) x [0, 200)   [0, 200) x [75, 100)   from 0, 1, 2, 4, 5, 6, 7
    4       [100, 125) x [0, 200)  [0, 200) x [100, 125)  from 0, 1, 2, 3, 5, 6, 7
    5       [125, 150) x [0, 200)  [0, 200) x [125, 150)  from 0, 1, 2, 3, 4, 6, 7
    6       [150, 175) x [0, 200)  [0, 200) x [150, 175)  from 0, 1, 2, 3, 4, 5, 7
    7       [175, 200) x [0, 200)  [0, 200) x [175, 200)  from 0, 1, 2, 3, 4, 5, 6

Form: routed; tiles go from device to device, in slots that XLA packs and unpacks.
The wire carries 1.609 times the bytes of the tiles, every hop counted.
The busiest device receives 33,280 bytes, padding included.
HBM traffic is 20.88 times the least possible.
Not all receivers are in reach of a sender: in 3 rounds a device sends on 23 slots,
of at most 2,560 bytes, and receives its tiles from 13 devices.
Digit of stride 2: a line of 4 devices; 1 to 3 go up it, 7 to 5 down.
What goes to the device 7 farther on, digit by digit:
    from slot 6 to slot 8 of the device whose digit of stride 1 is 1 higher
    from slot 8 to slot 6 of the device whose digit of stride 2 is 2 higher
    from slot 6 to slot 6 of the device whose digit of stride 2 is 1 higher
The staging area has 35,840 bytes of HBM.

Emitted by
    shardwright emit --mesh x=2,y=4 --shape 200x200 --dtype float32 --source '[{"x", "y"}, {}]' --target '[{}, {"x", "y"}]' --topology torus:2x4,wrap=0x0,bandwidth=5e+10,latency=1e-06,powers_of_two=1,ragged=512,memory=8.19e+11 --name all_to_all_v5e
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
from .._support.pallas_dense import Dense
from .._support.pallas_peers import each, remote_copy, signal, wait_for
from .._support.pallas_pieces import Forms, Peers
from .._support.pallas_routed import Routed
from .._support.pallas_steps import Schedule, Step, hop

require("pallas_tpu", "24fecbfefb230f2f", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (200, 200)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=4]>'
SOURCE = '[{"x", "y"}, {}]'
TARGET = '[{}, {"x", "y"}]'
LOCAL_SOURCE_SHAPE = (25, 200)
LOCAL_TARGET_SHAPE = (200, 25)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "085a4ed719b2fbc4"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("x", 2), ("y", 4))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 33280  # received by the busiest device, padding included
COLLECTIVE_ID = 7488


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return position, 0


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return 0, position


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position * 25
    return lo0, lo0 + 25, 0, 200


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo1 = position * 25
    return 0, 200, lo1, lo1 + 25


def tile(a0, a1, b0, b1):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_lo0 = a0 * 25
    target_lo1 = b1 * 25
    return source_lo0, source_lo0 + 25, target_lo1, target_lo1 + 25


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    return 0, 8, 0, 1


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    return 0, 1, 0, 8


def target_position(b0, b1, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return b1


def holder(a0, a1, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P(("x", "y"), None))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P(None, ("x", "y")))
PEERS = Peers(
    _SOURCE,
    _TARGET,
    Forms(source_shard, target_shard, tile, senders, receivers, target_position, holder),
)


# Number of 512-byte granules in a slot: ceil(625 / 128).
SLOT = Dense((5, 1, 128), (25, 25))
SCHEDULE = Schedule(
    digits=((1, 2), (2, 8)),  # (stride, extent) of each digit of a place
    lines=(2,),  # strides of digits along axes that do not wrap around
    # Distances, digit by digit: the devices are that tiles go to;
    # then the initial slot for each (None: in order), and the final slot of arriving data.
    offsets=(1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15),
    starts=(0, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6),
    arrives=(5, 7, 2, 8, 4, 1, 6, 2, 6, 8, 4, 12, 13),
    # Moves: from, to, number of the offset.
    moves=(
        (2, 7, 2), (6, 8, 6), (2, 7, 8), (6, 10, 12), (5, 8, 5), (4, 8, 4), (4, 9, 10), (1, 9, 7),
        (8, 4, 4), (9, 4, 10), (7, 2, 2), (8, 1, 5), (8, 6, 6), (9, 2, 7), (7, 11, 8), (5, 12, 11),
        (10, 13, 12), (0, 5, 0), (1, 7, 1), (6, 6, 6), (3, 8, 3), (11, 6, 8), (3, 8, 9),
    ),
    # Round; hop (stride, extent, by) to the device whose digit is higher by `by`; first and end of
    # the moves; chunk; earlier steps whose arrivals it forwards, and whose places it overwrites;
    # whether the receiver signals that these are free.
    steps=(
        Step(0, (1, 2, 1), 0, 1, 0, (), (), False),
        Step(0, (2, 8, 1), 4, 5, 0, (), (), False),
        Step(0, (2, 8, 2), 5, 6, 0, (), (), False),
        Step(0, (2, 8, 6), 6, 7, 0, (), (), False),
        Step(0, (2, 8, 7), 7, 8, 0, (), (), False),
        Step(0, (1, 2, 1), 1, 2, 0, (), (), False),
        Step(0, (1, 2, 1), 2, 3, 0, (), (), False),
        Step(0, (1, 2, 1), 3, 4, 0, (), (), False),
        Step(1, (1, 2, 1), 8, 9, 0, (1, 2, 5), (2, 3), True),
        Step(1, (2, 8, 1), 10, 11, 0, (0, 6), (0, 6), True),
        Step(1, (2, 8, 2), 11, 12, 0, (), (4,), True),
        Step(1, (2, 8, 6), 13, 14, 0, (3, 4), (), True),
        Step(1, (2, 8, 7), 14, 15, 0, (), (), False),
        Step(1, (1, 2, 1), 9, 10, 0, (), (), True),
        Step(1, (2, 8, 2), 12, 13, 0, (), (5, 7), True),
        Step(1, (2, 8, 7), 15, 16, 0, (), (), False),
        Step(1, (2, 8, 7), 16, 17, 0, (7,), (), False),
        Step(2, (1, 2, 1), 17, 18, 0, (), (1, 15), True),
        Step(2, (2, 8, 1), 18, 19, 0, (10,), (9, 12), True),
        Step(2, (2, 8, 2), 20, 21, 0, (), (8, 10, 14), True),
        Step(2, (2, 8, 6), 21, 22, 0, (12,), (), True),
        Step(2, (2, 8, 1), 19, 20, 0, (14, 20), (), True),
        Step(2, (2, 8, 6), 22, 23, 0, (), (), True),
    ),
    slots=14,
    halves=False,
)  # fmt: skip


def _kernel(moves, x, slots, met, free, sent, received):
    """Forward arrivals step by step. Each step waits only for earlier steps, so all steps end.

    moves: the program's `table`, in SMEM; slots: in HBM, aliased by x;
    met: a semaphore by which partners acknowledge this device; free: one for each step,
    signalled when its places are free; sent, received: DMA semaphores of each step.
    """
    del x  # the same memory
    me = SCHEDULE.place(lax.axis_index(("x", "y")))

    def part_of(slot, row, step):  # the part of a slot that moves
        return slots.at[slot]

    def push(row, step, sent, received, device):
        read, write = (part_of(moves[row + end], row, step) for end in (0, 1))
        remote_copy(read, write, sent, received, device).start()

    def taken(row, step):  # the extent of a move
        return part_of(np.int32(0), row, step)

    steps, barrier = SCHEDULE.steps, pltpu.get_barrier_semaphore()

    def tell(place, semaphore):  # signal the device there, if any
        device = SCHEDULE.device(place)
        pl.when(SCHEDULE.is_device(place))(lambda: signal(semaphore, device))

    def hear(number):  # wait until the step's places on its receiver are free
        is_there = SCHEDULE.is_device(hop(me, *steps[number].way))
        pl.when(is_there)(lambda: pl.semaphore_wait(free.at[np.int32(number)], 1))

    def send(number):
        step, ends = steps[number], (sent.at[np.int32(number)], received.at[np.int32(number)])
        device = SCHEDULE.device(hop(me, *step.way))

        def one(move):
            row = move * 4
            pl.when(moves[row + 2] > 0)(lambda: push(row, step, *ends, device))

        each(step.end, one, step.first)

    def leave(number):  # wait for all sends of a step
        def one(move):
            row = move * 4
            part, own = taken(row, steps[number]), sent.at[np.int32(number)]
            pl.when(moves[row + 2] > 0)(lambda: wait_for(part, own))  # 2,560 bytes of each

        each(steps[number].end, one, steps[number].first)

    def come(number):  # wait for all arrivals of a step
        def one(move):
            row = move * 4
            part, own = taken(row, steps[number]), received.at[np.int32(number)]
            pl.when(moves[row + 3] > 0)(lambda: wait_for(part, own))  # 2,560 bytes of each

        each(steps[number].end, one, steps[number].first)

    # Partners signal that they have entered, acknowledge each other's signal, and wait for the
    # acknowledgements before they end, so that each signal is read before the next one arrives.
    partners = [hop(me, *way) for way in SCHEDULE.partners]
    count = sum(jnp.int32(SCHEDULE.is_device(place)) for place in partners)
    for place in partners:
        tell(place, barrier)
    pl.semaphore_wait(barrier, count)  # 1 from each partner
    for place in partners:
        tell(place, met)
    for number, step in enumerate(steps):
        for other in step.left:
            leave(other)
        if step.told:
            tell(hop(me, *step.back), free.at[np.int32(number)])
        for other in step.come:
            come(other)
        if step.told:
            hear(number)
        send(number)
    for number in range(len(steps)):
        if not any(number in step.left for step in steps):
            leave(number)
    for number in range(len(steps)):
        if not any(number in step.come for step in steps):
            come(number)
    pl.semaphore_wait(met, count)  # 1 from each partner


_PROGRAM = Routed(
    _kernel,
    PEERS,
    SCHEDULE,
    SLOT,
    window=(25, 25),  # the largest tile
    collective_id=COLLECTIVE_ID,
    bits="interpreted",
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
