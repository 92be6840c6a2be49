"""Reshards int32[4, 4, 4] over 16 devices: [{"w", "z"}, {}, {"x", "y"}] -> [{"x"}, {"y", "z"}, {}].

Source: [{"w", "z"}, {}, {"x", "y"}] on <["x"=2, "y"=2, "z"=2, "w"=2]>, shards of 1 x 4 x 1.
    d1(x, y, z, w)[k0, k1, k2] -> t[w * 2 + k0 + z, k1, x * 2 + k2 + y]
Target: [{"x"}, {"y", "z"}, {}] on <["x"=2, "y"=2, "z"=2, "w"=2]>, shards of 2 x 1 x 4.
    d2(x, y, z, w)[k0, k1, k2] -> t[x * 2 + k0, y * 2 + k1 + z, k2]

Along dimension 0, shards of 1 meet shards of 2: 2 of the source for one of the target.
Along dimension 1, shards of 4 meet shards of 1: one of the source for one of the target.
Along dimension 2, shards of 1 meet shards of 4: 4 of the source for one of the target.
Bytes of the busiest device: 32 in, 32 out, the least possible; 480 in all.

What comes from a device is what its range before shares with the receiver's after.

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
On the wire 128.000 times the exact bytes, 4,096 into the busiest device.
HBM reads and writes 448.00 times the least possible.
Staging 6,144 bytes of HBM, 0 of VMEM.

Emitted by
    shardwright emit --mesh x=2,y=2,z=2,w=2 --shape 4x4x4 --dtype int32 --source '[{"w", "z"}, {}, {"x", "y"}]' --target '[{"x"}, {"y", "z"}, {}]' --name move_four_axes
"""

import os

if not __package__:
    raise ImportError("part of a package: above FOLDER, run `python -m FOLDER.NAME.pallas_tpu`")
if __name__ == "__main__":  # one spare device, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=17")

from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

from .._support import require
from .._support.doors import absent
from .._support.jax_host import OneOrder
from .._support.jax_meshes import Sharded
from .._support.pallas_peers import (
    div,
    each,
    far_apart,
    maximum,
    minimum,
    operand,
    rem,
    remote_copy,
    signal,
    wait_for,
)
from .._support.pallas_pieces import Forms, Peers
from .._support.pallas_slots import Slot, Slots, slot_number

require("pallas_tpu", "e6a4f092ea23d8ad", __name__)

__getattr__ = absent(__name__)
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
PLAN = "a2e1c87034338e6c"  # processes that exchange must have the same
SOURCE_AXES = TARGET_AXES = (("x", 2), ("y", 2), ("z", 2), ("w", 2))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 4096  # received by the busiest device, padding included
COLLECTIVE_ID = 6376


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return rem(position, 2) * 2 + rem(div(position, 2), 2), 0, div(position, 4)


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return div(position, 8), rem(div(position, 2), 4), 0


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


def tile(a0, a1, a2, b0, b1, b2):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    target_lo0 = b0 * 2
    return maximum(a0, target_lo0), minimum(a0 + 1, target_lo0 + 2), b1, b1 + 1, a2, a2 + 1


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    first0 = div(position, 8) * 2
    return first0, 2, 0, 1, 0, 4


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    first0 = rem(position, 2)
    return first0, 1, 0, 4, 0, 1


def target_position(b0, b1, b2, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return b0 * 8 + b1 * 2 + replica


def holder(a0, a1, a2, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a2 * 4 + rem(a0, 2) * 2 + div(a0, 2)


_SOURCE = Sharded(
    SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P(("w", "z"), None, ("x", "y"))
)
_TARGET = Sharded(
    TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("x", ("y", "z"), None)
)
PEERS = Peers(
    _SOURCE,
    _TARGET,
    Forms(source_shard, target_shard, tile, senders, receivers, target_position, holder),
    replicas=2,
)


# Granules of 512 bytes: ceil(1 / 128).
SLOT = Slot((1, 1, 128), (1, 1, 1), dense=True)


def _at(slots, place, box):
    """Return the granules of a slot that a tile's tensor box fills."""
    size = maximum(box[1] - box[0], 0) * 1
    return slots.at[operand(place), pl.ds(0, div(size + 127, 128)), :, :]


def _kernel(order, x, y, copied, sent, received):
    """Push this device's slots of tiles, x, to those of their receivers, y.

    order: a table of ranks, or None; DMA semaphores: `sent` counts the bytes leaving x,
    `received` those arriving in y, `copied` those of tiles that stay.
    """
    me, receiver = PEERS.here(order)
    barrier = pltpu.get_barrier_semaphore()

    def tell(number):  # its senders may write to this device from here on
        piece = PEERS.incoming(receiver, me, number)
        pl.when(piece.moves)(lambda: signal(barrier, PEERS.source_rank(piece.peer, order)))

    def hear(number):
        piece = PEERS.outgoing(me, number, order)
        pl.when(piece.moves)(lambda: pl.semaphore_wait(barrier, 1))  # 1 for each piece to send

    each(PEERS.incoming_count(receiver), tell)
    each(PEERS.outgoing_count(me), hear)

    def tile(number):  # whether it is sent, and its copy
        piece = PEERS.outgoing(me, number, order)
        place = slot_number(piece.shard, receivers(me), piece.piece, 1)
        there = slot_number(source_shard(me), senders(piece.peer), piece.piece, 1)
        read, write = _at(x, place, piece.box), _at(y, there, piece.box)
        device = PEERS.target_rank(piece.peer, order)
        return piece.moves, remote_copy(read, write, sent, received, device)

    def push(number):
        moves, copy = tile(number)
        pl.when(moves)(copy.start)

    def leave(number):
        moves, copy = tile(number)
        pl.when(moves)(copy.wait_send)  # the granules of each tile pushed, of 512 bytes

    def come(number):
        piece = PEERS.incoming(receiver, me, number)
        place = slot_number(piece.shard, senders(receiver), piece.piece, 1)
        slot = _at(y, place, piece.box)
        pl.when(piece.moves)(lambda: wait_for(slot, received))  # of each arriving tile

    count = PEERS.outgoing_count(me)
    each(count, lambda place: push(far_apart(place, count)))

    def stay(piece):  # the local copy of a tile of the own target shard
        own, wanted = source_shard(me), target_shard(receiver)
        box = PEERS.tile(own, wanted, piece)
        place = slot_number(wanted, receivers(me), piece, 1)
        there = slot_number(own, senders(receiver), piece, 1)
        return pltpu.make_async_copy(_at(x, place, box), _at(y, there, box), copied)

    has, _ = PEERS.kept_by(me, receiver)
    pl.when(has)(stay(0).start)
    pl.when(has)(stay(0).wait)
    each(count, leave)
    each(PEERS.incoming_count(receiver), come)


_PROGRAM = Slots(
    _kernel,
    PEERS,
    SLOT,
    window=(1, 1, 1),  # the largest tile
    outgoing=4,  # up to 1 x 4 x 1 tiles of a device
    incoming=8,  # up to 2 x 1 x 4 tiles of a device
    source_reach=(1, 4, 1),  # of windows at the last tiles in a shard of 1 x 4 x 1
    target_reach=(2, 1, 4),  # the same in one of 2 x 1 x 4
    collective_id=COLLECTIVE_ID,
)


_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
