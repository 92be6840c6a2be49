"""Reshards int32[4, 8] over 8 devices: [{"x"}, {"y", "z"}] -> [{"x"}, {"z"}].

Source: [{"x"}, {"y", "z"}] on <["x"=2, "y"=2, "z"=2]>, shards of 2 x 2.
    d1(x, y, z)[k0, k1] -> t[x * 2 + k0, y * 4 + z * 2 + k1]
Target: [{"x"}, {"z"}] on <["x"=2, "y"=2, "z"=2]>, shards of 2 x 4.
    d2(x, y, z)[k0, k1] -> t[x * 2 + k0, z * 4 + k1]

Along dimension 0, shards of 2 meet shards of 2: one of the source for one of the target.
Along dimension 1, shards of 2 meet shards of 4: 2 of the source for one of the target.
Bytes of the busiest device: 32 in, 32 out, the least possible; 192 in all.

    device  before           after            receives
    0       [0, 2) x [0, 2)  [0, 2) x [0, 4)  [0, 2) x [2, 4) from 1
    1       [0, 2) x [2, 4)  [0, 2) x [4, 8)  [0, 2) x [4, 6) from 2, [0, 2) x [6, 8) from 3
    2       [0, 2) x [4, 6)  [0, 2) x [0, 4)  [0, 2) x [0, 2) from 0, [0, 2) x [2, 4) from 1
    3       [0, 2) x [6, 8)  [0, 2) x [4, 8)  [0, 2) x [4, 6) from 2
    4       [2, 4) x [0, 2)  [2, 4) x [0, 4)  [2, 4) x [2, 4) from 5
    5       [2, 4) x [2, 4)  [2, 4) x [4, 8)  [2, 4) x [4, 6) from 6, [2, 4) x [6, 8) from 7
    6       [2, 4) x [4, 6)  [2, 4) x [0, 4)  [2, 4) x [0, 2) from 4, [2, 4) x [2, 4) from 5
    7       [2, 4) x [6, 8)  [2, 4) x [4, 8)  [2, 4) x [4, 6) from 6

Form: slots; XLA packs thin tiles densely into slots, and unpacks them.
On the wire 32.000 times the exact bytes, 1,024 into the busiest device.
HBM reads and writes 176.00 times the least possible.
Staging 1,536 bytes of HBM, 0 of VMEM.

Emitted by
    shardwright emit --mesh x=2,y=2,z=2 --shape 4x8 --dtype int32 --source '[{"x"}, {"y", "z"}]' --target '[{"x"}, {"z"}]' --name gather_major_2x2x2
"""

import os

if not __package__:
    raise ImportError("part of a package: above FOLDER, run `python -m FOLDER.NAME.pallas_tpu`")
if __name__ == "__main__":  # one spare device, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=9")

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

SHAPE = (4, 8)
DTYPE = "int32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=2, "z"=2]>'
SOURCE = '[{"x"}, {"y", "z"}]'
TARGET = '[{"x"}, {"z"}]'
LOCAL_SOURCE_SHAPE = (2, 2)
LOCAL_TARGET_SHAPE = (2, 4)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "ff5909245fc044c4"  # processes that exchange must have the same
SOURCE_AXES = TARGET_AXES = (("x", 2), ("y", 2), ("z", 2))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 1024  # received by the busiest device, padding included
COLLECTIVE_ID = 19104


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return div(position, 4), rem(position, 4)


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return div(position, 4), rem(position, 2)


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = div(position, 4) * 2
    lo1 = rem(position, 4) * 2
    return lo0, lo0 + 2, lo1, lo1 + 2


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = div(position, 4) * 2
    lo1 = rem(position, 2) * 4
    return lo0, lo0 + 2, lo1, lo1 + 4


def tile(a0, a1, b0, b1):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_lo0 = a0 * 2
    target_lo0 = b0 * 2
    source_lo1 = a1 * 2
    target_lo1 = b1 * 4
    return (
        maximum(source_lo0, target_lo0),
        minimum(source_lo0 + 2, target_lo0 + 2),
        maximum(source_lo1, target_lo1),
        minimum(source_lo1 + 2, target_lo1 + 4),
    )


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    first0 = div(position, 4)
    first1 = rem(position, 2) * 2
    return first0, 1, first1, 2


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    first0 = div(position, 4)
    first1 = rem(div(position, 2), 2)
    return first0, 1, first1, 1


def target_position(b0, b1, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return b0 * 4 + replica * 2 + b1


def holder(a0, a1, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0 * 4 + a1


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("x", ("y", "z")))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("x", "z"))
PEERS = Peers(
    _SOURCE,
    _TARGET,
    Forms(source_shard, target_shard, tile, senders, receivers, target_position, holder),
    replicas=2,
)


# Granules of 512 bytes: ceil(4 / 128).
SLOT = Slot((1, 1, 128), (2, 2), dense=True)


def _at(slots, place, box):
    """Return the granules of a slot that a tile's tensor box fills."""
    size = maximum(box[1] - box[0], 0) * 2
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
    window=(2, 2),  # the largest tile
    outgoing=1,  # up to 1 x 1 tiles of a device
    incoming=2,  # up to 1 x 2 tiles of a device
    source_reach=(2, 2),  # of windows at the last tiles in a shard of 2 x 2
    target_reach=(2, 4),  # the same in one of 2 x 4
    collective_id=COLLECTIVE_ID,
)


_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
