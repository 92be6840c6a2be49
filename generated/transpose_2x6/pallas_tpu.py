"""Reshards float32[6, 6] over 12 devices: [{"x"}, {"y"}] -> [{"y"}, {"x"}].

Source: [{"x"}, {"y"}] on <["x"=2, "y"=6]>, shards of 3 x 1.
    d1(x, y)[k0, k1] -> t[x * 3 + k0, k1 + y]
Target: [{"y"}, {"x"}] on <["x"=2, "y"=6]>, shards of 1 x 3.
    d2(x, y)[k0, k1] -> t[k0 + y, x * 3 + k1]

Along dimension 0, shards of 3 meet shards of 1: one of the source for one of the target.
Along dimension 1, shards of 1 meet shards of 3: 3 of the source for one of the target.
Bytes of the busiest device: 12 in, 12 out, the least possible; 120 in all.

    device  before           after            receives
    0       [0, 3) x [0, 1)  [0, 1) x [0, 3)  [0, 1) x [1, 2) from 1, [0, 1) x [2, 3) from 2
    1       [0, 3) x [1, 2)  [1, 2) x [0, 3)  [1, 2) x [0, 1) from 0, [1, 2) x [2, 3) from 2
    2       [0, 3) x [2, 3)  [2, 3) x [0, 3)  [2, 3) x [0, 1) from 0, [2, 3) x [1, 2) from 1
    3       [0, 3) x [3, 4)  [3, 4) x [0, 3)  [3, 4) x [0, 1) from 6, [3, 4) x [1, 2) from 7,
                                              [3, 4) x [2, 3) from 8
    4       [0, 3) x [4, 5)  [4, 5) x [0, 3)  [4, 5) x [0, 1) from 6, [4, 5) x [1, 2) from 7,
                                              [4, 5) x [2, 3) from 8
    5       [0, 3) x [5, 6)  [5, 6) x [0, 3)  [5, 6) x [0, 1) from 6, [5, 6) x [1, 2) from 7,
                                              [5, 6) x [2, 3) from 8
    6       [3, 6) x [0, 1)  [0, 1) x [3, 6)  [0, 1) x [3, 4) from 3, [0, 1) x [4, 5) from 4,
                                              [0, 1) x [5, 6) from 5
    7       [3, 6) x [1, 2)  [1, 2) x [3, 6)  [1, 2) x [3, 4) from 3, [1, 2) x [4, 5) from 4,
                                              [1, 2) x [5, 6) from 5
    8       [3, 6) x [2, 3)  [2, 3) x [3, 6)  [2, 3) x [3, 4) from 3, [2, 3) x [4, 5) from 4,
                                              [2, 3) x [5, 6) from 5
    9       [3, 6) x [3, 4)  [3, 4) x [3, 6)  [3, 4) x [4, 5) from 10, [3, 4) x [5, 6) from 11
    10      [3, 6) x [4, 5)  [4, 5) x [3, 6)  [4, 5) x [3, 4) from 9, [4, 5) x [5, 6) from 11
    11      [3, 6) x [5, 6)  [5, 6) x [3, 6)  [5, 6) x [3, 4) from 9, [5, 6) x [4, 5) from 10

Form: slots; XLA packs thin tiles densely into slots, and unpacks them.
On the wire 128.000 times the exact bytes, 1,536 into the busiest device.
HBM reads and writes 554.67 times the least possible.
Staging 3,072 bytes of HBM, 0 of VMEM.

Emitted by
    shardwright emit --mesh x=2,y=6 --shape 6x6 --dtype float32 --source '[{"x"}, {"y"}]' --target '[{"y"}, {"x"}]' --name transpose_2x6
"""

import os

if not __package__:
    raise ImportError("part of a package: above FOLDER, run `python -m FOLDER.NAME.pallas_tpu`")
if __name__ == "__main__":  # one spare device, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=13")

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

SHAPE = (6, 6)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=6]>'
SOURCE = '[{"x"}, {"y"}]'
TARGET = '[{"y"}, {"x"}]'
LOCAL_SOURCE_SHAPE = (3, 1)
LOCAL_TARGET_SHAPE = (1, 3)
SOURCE_IDS = TARGET_IDS = range(12)  # by mesh position
PLAN = "91fb2ad9da0f163c"  # processes that exchange must have the same
SOURCE_AXES = TARGET_AXES = (("x", 2), ("y", 6))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 1536  # received by the busiest device, padding included
COLLECTIVE_ID = 22232


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return div(position, 6), rem(position, 6)


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return rem(position, 6), div(position, 6)


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = div(position, 6) * 3
    lo1 = rem(position, 6)
    return lo0, lo0 + 3, lo1, lo1 + 1


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = rem(position, 6)
    lo1 = div(position, 6) * 3
    return lo0, lo0 + 1, lo1, lo1 + 3


def tile(a0, a1, b0, b1):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_lo0 = a0 * 3
    target_lo1 = b1 * 3
    return (
        maximum(source_lo0, b0),
        minimum(source_lo0 + 3, b0 + 1),
        maximum(a1, target_lo1),
        minimum(a1 + 1, target_lo1 + 3),
    )


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    first0 = rem(div(position, 3), 2)
    first1 = div(position, 6) * 3
    return first0, 1, first1, 3


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    first0 = div(position, 6) * 3
    first1 = rem(div(position, 3), 2)
    return first0, 3, first1, 1


def target_position(b0, b1, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return b1 * 6 + b0


def holder(a0, a1, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0 * 6 + a1


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("x", "y"))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("y", "x"))
PEERS = Peers(
    _SOURCE,
    _TARGET,
    Forms(source_shard, target_shard, tile, senders, receivers, target_position, holder),
)


# Granules of 512 bytes: ceil(1 / 128).
SLOT = Slot((1, 1, 128), (1, 1), dense=True)


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
    window=(1, 1),  # the largest tile
    outgoing=3,  # up to 3 x 1 tiles of a device
    incoming=3,  # up to 1 x 3 tiles of a device
    source_reach=(3, 1),  # of windows at the last tiles in a shard of 3 x 1
    target_reach=(1, 3),  # the same in one of 1 x 3
    collective_id=COLLECTIVE_ID,
)


_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
