"""Reshards float32[16, 23] over 12 devices: [{"x"}, {"y"}] -> [{"y"}, {"x"}].

Source: [{"x"}, {"y"}] on <["x"=3, "y"=4]>, shards of 6 x 6.
    d1(x, y)[k0, k1] -> t[x * 6 + k0, y * 6 + k1]
    The last shards along dimensions 0 and 1 are short or empty; they are padded at the end to 6 x
        6.
Target: [{"y"}, {"x"}] on <["x"=3, "y"=4]>, shards of 4 x 8.
    d2(x, y)[k0, k1] -> t[y * 4 + k0, x * 8 + k1]
    The last shards along dimension 1 are short or empty; they are padded at the end to 4 x 8.

Along dimension 0, source shards of 6 meet target shards of 4: up to 2 source shards for each target
    shard.
Along dimension 1, source shards of 6 meet target shards of 8: 2 source shards for each target
    shard.
No device receives over 128 bytes or sends over 144, the least possible.
All devices together receive 1184.

    device  before               after                receives
    0       [0, 6) x [0, 6)      [0, 4) x [0, 8)      [0, 4) x [6, 8) from 1
    1       [0, 6) x [6, 12)     [4, 8) x [0, 8)      [4, 6) x [0, 6) from 0,
                                                      [6, 8) x [0, 6) from 4, [6, 8) x [6, 8) from 5
    2       [0, 6) x [12, 18)    [8, 12) x [0, 8)     [8, 12) x [0, 6) from 4,
                                                      [8, 12) x [6, 8) from 5
    3       [0, 6) x [18, 23)    [12, 16) x [0, 8)    [12, 16) x [0, 6) from 8,
                                                      [12, 16) x [6, 8) from 9
    4       [6, 12) x [0, 6)     [0, 4) x [8, 16)     [0, 4) x [8, 12) from 1,
                                                      [0, 4) x [12, 16) from 2
    5       [6, 12) x [6, 12)    [4, 8) x [8, 16)     [4, 6) x [8, 12) from 1,
                                                      [4, 6) x [12, 16) from 2,
                                                      [6, 8) x [12, 16) from 6
    6       [6, 12) x [12, 18)   [8, 12) x [8, 16)    [8, 12) x [8, 12) from 5
    7       [6, 12) x [18, 23)   [12, 16) x [8, 16)   [12, 16) x [8, 12) from 9,
                                                      [12, 16) x [12, 16) from 10
    8       [12, 16) x [0, 6)    [0, 4) x [16, 23)    [0, 4) x [16, 18) from 2,
                                                      [0, 4) x [18, 23) from 3
    9       [12, 16) x [6, 12)   [4, 8) x [16, 23)    [4, 6) x [16, 18) from 2,
                                                      [4, 6) x [18, 23) from 3,
                                                      [6, 8) x [16, 18) from 6,
                                                      [6, 8) x [18, 23) from 7
    10      [12, 16) x [12, 18)  [8, 12) x [16, 23)   [8, 12) x [16, 18) from 6,
                                                      [8, 12) x [18, 23) from 7
    11      [12, 16) x [18, 23)  [12, 16) x [16, 23)  [12, 16) x [16, 18) from 10

Form: slots; XLA packs thin tiles densely into slots, and unpacks them.
The wire carries 10.811 times the bytes of the tiles.
The busiest device receives 2,048 bytes, padding included.
HBM traffic is 181.79 times the least possible.
The staging area has 4,096 bytes of HBM.

Emitted by
    shardwright emit --mesh x=3,y=4 --shape 16x23 --dtype float32 --source '[{"x"}, {"y"}]' --target '[{"y"}, {"x"}]' --name transpose_3x4_uneven
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.pallas_tpu` in the folder that contains FOLDER")
if __name__ == "__main__":  # one spare device, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=13")

from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

from .._support import require
from .._support.jax_host import OneOrder
from .._support.jax_meshes import Sharded
from .._support.jax_padding import Padding
from .._support.pallas_dense import Dense
from .._support.pallas_integers import far_apart, maximum, minimum
from .._support.pallas_own import kept_by
from .._support.pallas_peers import div, each, operand, rem, remote_copy, signal, wait_for
from .._support.pallas_pieces import Forms, Peers
from .._support.pallas_slots import Slots, slot_number

require("pallas_tpu", "24fecbfefb230f2f", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (16, 23)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=3, "y"=4]>'
SOURCE = '[{"x"}, {"y"}]'
TARGET = '[{"y"}, {"x"}]'
LOCAL_SOURCE_SHAPE = (6, 6)
LOCAL_TARGET_SHAPE = (4, 8)
SOURCE_IDS = TARGET_IDS = range(12)  # by mesh position
PLAN = "881dd8dc252083aa"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("x", 3), ("y", 4))
# The shapes of global arrays, every shard padded at its end to the largest.
PADDED_SOURCE_SHAPE = (18, 24)
PADDED_TARGET_SHAPE = (16, 24)
WIRE_BYTES = 2048  # received by the busiest device, padding included
COLLECTIVE_ID = 25832


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return div(position, 4), rem(position, 4)


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return rem(position, 4), div(position, 4)


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = div(position, 4) * 6
    lo1 = rem(position, 4) * 6
    return lo0, minimum(lo0 + 6, 16), lo1, minimum(lo1 + 6, 23)


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = rem(position, 4) * 4
    lo1 = div(position, 4) * 8
    return lo0, lo0 + 4, lo1, minimum(lo1 + 8, 23)


def tile(a0, a1, b0, b1):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_lo0 = a0 * 6
    target_lo0 = b0 * 4
    source_lo1 = a1 * 6
    target_lo1 = b1 * 8
    return (
        maximum(source_lo0, target_lo0),
        minimum(source_lo0 + 6, target_lo0 + 4),
        maximum(source_lo1, target_lo1),
        minimum(source_lo1 + 6, minimum(target_lo1 + 8, 23)),
    )


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    first0 = div(rem(position, 4) * 2, 3)
    first1 = div(div(position, 4) * 4, 3)
    return (
        first0,
        div(rem(position, 4) * 4 + 3, 6) + 1 - first0,
        first1,
        div(minimum(div(position, 4) * 8 + 8, 23) - 1, 6) + 1 - first1,
    )


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    first0 = div(div(position, 4) * 3, 2)
    first1 = div(rem(position, 4) * 3, 4)
    return (
        first0,
        div(minimum(div(position, 4) * 6 + 6, 16) - 1, 4) + 1 - first0,
        first1,
        div(minimum(rem(position, 4) * 6 + 6, 23) - 1, 8) + 1 - first1,
    )


def target_position(b0, b1, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return b1 * 4 + b0


def holder(a0, a1, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0 * 4 + a1


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("x", "y"))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("y", "x"))
PEERS = Peers(
    _SOURCE,
    _TARGET,
    Forms(source_shard, target_shard, tile, senders, receivers, target_position, holder),
)


# Number of 512-byte granules in a slot: ceil(24 / 128).
SLOT = Dense((1, 1, 128), (4, 6))


def _at(slots, place, box):
    """Return the granules of a slot that a tile's tensor box fills."""
    size = maximum(box[1] - box[0], 0) * 6
    return slots.at[operand(place), pl.ds(0, div(size + 127, 128)), :, :]


def _kernel(order, x, y, copied, sent, received):
    """Push this device's slots of tiles, x, to the slots of their receivers, y.

    order: a table of ranks, or None; DMA semaphores: `sent` counts bytes leaving x, `received`
    bytes arriving in y, `copied` bytes of tiles that stay.
    """
    me, receiver = PEERS.here(order)
    barrier = pltpu.get_barrier_semaphore()

    def tell(number):  # from here on a piece's sender may write to this device
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
        pl.when(moves)(copy.wait_send)  # the 512-byte granules of each pushed tile

    def arrive(number):
        piece = PEERS.incoming(receiver, me, number)
        slot = _at(y, number, piece.box)
        pl.when(piece.moves)(lambda: wait_for(slot, received))  # the granules of each arriving tile

    count = PEERS.outgoing_count(me)
    each(count, lambda place: push(far_apart(place, count)))

    def stay(piece):  # the local copy of a tile of this device's target shard
        own, wanted = source_shard(me), target_shard(receiver)
        box = PEERS.tile(own, wanted, piece)
        place = slot_number(wanted, receivers(me), piece, 1)
        there = slot_number(own, senders(receiver), piece, 1)
        return pltpu.make_async_copy(_at(x, place, box), _at(y, there, box), copied)

    has, _ = kept_by(PEERS, me, receiver)
    pl.when(has)(stay(0).start)
    pl.when(has)(stay(0).wait)
    each(count, leave)
    each(PEERS.incoming_count(receiver), arrive)


_PROGRAM = Slots(
    _kernel,
    PEERS,
    SLOT,
    (4, 4),  # slots: up to 2 x 2 tiles leave a device, 2 x 2 come
    source_reach=(8, 10),  # of the last windows, in a shard of 6 x 6
    target_reach=(6, 12),  # of the last windows, in a shard of 4 x 8
    collective_id=COLLECTIVE_ID,
    bits="interpreted",
)


_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM, padding=Padding)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
