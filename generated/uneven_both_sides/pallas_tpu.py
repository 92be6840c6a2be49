"""Reshards float32[7, 13, 29] over 8 devices: [{"x"}, {"y", "z"}, {}] -> [{}, {"z"}, {"y", "x"}].

Source: [{"x"}, {"y", "z"}, {}] on <["x"=2, "y"=2, "z"=2]>, shards of 4 x 4 x 29.
    d1(x, y, z)[k0, k1, k2] -> t[x * 4 + k0, y * 8 + z * 4 + k1, k2]
    The last shards along dimensions 0 and 1 are short or empty; they are padded at the end to 4 x 4
        x 29.
Target: [{}, {"z"}, {"y", "x"}] on <["x"=2, "y"=2, "z"=2]>, shards of 7 x 7 x 8.
    d2(x, y, z)[k0, k1, k2] -> t[k0, z * 7 + k1, y * 16 + x * 8 + k2]
    The last shards along dimensions 1 and 2 are short or empty; they are padded at the end to 7 x 7
        x 8.

Along dimension 0, source shards of 4 meet target shards of 7: 2 source shards for each target
    shard.
Along dimension 1, source shards of 4 meet target shards of 7: up to 3 source shards for each target
    shard.
Along dimension 2, source shards of 29 meet target shards of 8: 1 source shard for each target
    shard.
No device receives over 1568 bytes or sends over 1856, the least possible.
All devices together receive 9248.

    device  before                       after
    0       [0, 4) x [0, 4) x [0, 29)    [0, 7) x [0, 7) x [0, 8)
            receives [0, 4) x [4, 7) x [0, 8) from 1, [4, 7) x [0, 4) x [0, 8) from 4,
            [4, 7) x [4, 7) x [0, 8) from 5
    1       [0, 4) x [4, 8) x [0, 29)    [0, 7) x [7, 13) x [0, 8)
            receives [0, 4) x [8, 12) x [0, 8) from 2, [0, 4) x [12, 13) x [0, 8) from 3,
            [4, 7) x [7, 8) x [0, 8) from 5, [4, 7) x [8, 12) x [0, 8) from 6,
            [4, 7) x [12, 13) x [0, 8) from 7
    2       [0, 4) x [8, 12) x [0, 29)   [0, 7) x [0, 7) x [16, 24)
            receives [0, 4) x [0, 4) x [16, 24) from 0, [0, 4) x [4, 7) x [16, 24) from 1,
            [4, 7) x [0, 4) x [16, 24) from 4, [4, 7) x [4, 7) x [16, 24) from 5
    3       [0, 4) x [12, 13) x [0, 29)  [0, 7) x [7, 13) x [16, 24)
            receives [0, 4) x [7, 8) x [16, 24) from 1, [0, 4) x [8, 12) x [16, 24) from 2,
            [4, 7) x [7, 8) x [16, 24) from 5, [4, 7) x [8, 12) x [16, 24) from 6,
            [4, 7) x [12, 13) x [16, 24) from 7
    4       [4, 7) x [0, 4) x [0, 29)    [0, 7) x [0, 7) x [8, 16)
            receives [0, 4) x [0, 4) x [8, 16) from 0, [0, 4) x [4, 7) x [8, 16) from 1,
            [4, 7) x [4, 7) x [8, 16) from 5
    5       [4, 7) x [4, 8) x [0, 29)    [0, 7) x [7, 13) x [8, 16)
            receives [0, 4) x [7, 8) x [8, 16) from 1, [0, 4) x [8, 12) x [8, 16) from 2,
            [0, 4) x [12, 13) x [8, 16) from 3, [4, 7) x [8, 12) x [8, 16) from 6,
            [4, 7) x [12, 13) x [8, 16) from 7
    6       [4, 7) x [8, 12) x [0, 29)   [0, 7) x [0, 7) x [24, 29)
            receives [0, 4) x [0, 4) x [24, 29) from 0, [0, 4) x [4, 7) x [24, 29) from 1,
            [4, 7) x [0, 4) x [24, 29) from 4, [4, 7) x [4, 7) x [24, 29) from 5
    7       [4, 7) x [12, 13) x [0, 29)  [0, 7) x [7, 13) x [24, 29)
            receives [0, 4) x [7, 8) x [24, 29) from 1, [0, 4) x [8, 12) x [24, 29) from 2,
            [0, 4) x [12, 13) x [24, 29) from 3, [4, 7) x [7, 8) x [24, 29) from 5,
            [4, 7) x [8, 12) x [24, 29) from 6

Form: slots; XLA packs thin tiles densely into slots, and unpacks them.
The wire carries 1.882 times the bytes of the tiles.
The busiest device receives 2,560 bytes, padding included.
HBM traffic is 87.95 times the least possible.
The staging area has 7,168 bytes of HBM.

Emitted by
    shardwright emit --mesh x=2,y=2,z=2 --shape 7x13x29 --dtype float32 --source '[{"x"}, {"y", "z"}, {}]' --target '[{}, {"z"}, {"y", "x"}]' --backends pallas_tpu,triton_gpu,jax_xla --name uneven_both_sides
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.pallas_tpu` in the folder that contains FOLDER")
if __name__ == "__main__":  # one spare device, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=9")

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

SHAPE = (7, 13, 29)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=2, "z"=2]>'
SOURCE = '[{"x"}, {"y", "z"}, {}]'
TARGET = '[{}, {"z"}, {"y", "x"}]'
LOCAL_SOURCE_SHAPE = (4, 4, 29)
LOCAL_TARGET_SHAPE = (7, 7, 8)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "1e2916a2f71a9b7c"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("x", 2), ("y", 2), ("z", 2))
# The shapes of global arrays, every shard padded at its end to the largest.
PADDED_SOURCE_SHAPE = (8, 16, 29)
PADDED_TARGET_SHAPE = (7, 14, 32)
WIRE_BYTES = 2560  # received by the busiest device, padding included
COLLECTIVE_ID = 13628


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return div(position, 4), rem(position, 4), 0


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return 0, rem(position, 2), rem(div(position, 2), 2) * 2 + div(position, 4)


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = div(position, 4) * 4
    lo1 = rem(position, 4) * 4
    return lo0, minimum(lo0 + 4, 7), lo1, minimum(lo1 + 4, 13), 0, 29


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo1 = rem(position, 2) * 7
    lo2 = rem(div(position, 2), 2) * 16 + div(position, 4) * 8
    return 0, 7, lo1, minimum(lo1 + 7, 13), lo2, minimum(lo2 + 8, 29)


def tile(a0, a1, a2, b0, b1, b2):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_lo0 = a0 * 4
    source_lo1 = a1 * 4
    target_lo1 = b1 * 7
    target_lo2 = b2 * 8
    return (
        source_lo0,
        minimum(source_lo0 + 4, 7),
        maximum(source_lo1, target_lo1),
        minimum(source_lo1 + 4, minimum(target_lo1 + 7, 13)),
        target_lo2,
        minimum(target_lo2 + 8, 29),
    )


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    first1 = div(rem(position, 2) * 7, 4)
    return 0, 2, first1, div(minimum(rem(position, 2) * 7 + 7, 13) - 1, 4) + 1 - first1, 0, 1


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    first1 = div(rem(position, 4) * 4, 7)
    return 0, 1, first1, div(minimum(rem(position, 4) * 4 + 4, 13) - 1, 7) + 1 - first1, 0, 4


def target_position(b0, b1, b2, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return rem(b2, 2) * 4 + div(b2, 2) * 2 + b1


def holder(a0, a1, a2, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0 * 4 + a1


_SOURCE = Sharded(
    SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("x", ("y", "z"), None)
)
_TARGET = Sharded(
    TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P(None, "z", ("y", "x"))
)
PEERS = Peers(
    _SOURCE,
    _TARGET,
    Forms(source_shard, target_shard, tile, senders, receivers, target_position, holder),
)


# Number of 512-byte granules in a slot: ceil(128 / 128).
SLOT = Dense((1, 1, 128), (4, 4, 8))


def _at(slots, place, box):
    """Return the granules of a slot that a tile's tensor box fills."""
    size = maximum(box[1] - box[0], 0) * 32
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
    (8, 6),  # slots: up to 1 x 2 x 4 tiles leave a device, 2 x 3 x 1 come
    source_reach=(4, 7, 32),  # of the last windows, in a shard of 4 x 4 x 29
    target_reach=(8, 9, 8),  # of the last windows, in a shard of 7 x 7 x 8
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
