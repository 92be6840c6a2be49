"""Reshards int8[64, 96] over 8 devices: [{"x"}, {}] -> [{"x":(1)2}, {"x":(2)2, "y"}].

Source: [{"x"}, {}] on <["x"=4, "y"=2]>, shards of 16 x 96.
    d1(x, y)[k0, k1] -> t[x * 16 + k0, k1]
Target: [{"x":(1)2}, {"x":(2)2, "y"}] on <["x"=4, "y"=2]>, shards of 32 x 24.
    d2(x, y)[k0, k1] -> t[x // 2 * 32 + k0, x % 2 * 48 + y * 24 + k1]

Along dimension 0, source shards of 16 meet target shards of 32: 2 source shards for each target
    shard.
Along dimension 1, source shards of 96 meet target shards of 24: 1 source shard for each target
    shard.
Of the 2 holders of a tile, the sender is the one whose coordinates along the axes that do not split
    the source equal the receiver's.
No device receives over 384 bytes or sends over 384, the least possible.
All devices together receive 3072.

    device  before              after                receives
    0       [0, 16) x [0, 96)   [0, 32) x [0, 24)    [16, 32) x [0, 24) from 2
    1       [0, 16) x [0, 96)   [0, 32) x [24, 48)   [16, 32) x [24, 48) from 3
    2       [16, 32) x [0, 96)  [0, 32) x [48, 72)   [0, 16) x [48, 72) from 0
    3       [16, 32) x [0, 96)  [0, 32) x [72, 96)   [0, 16) x [72, 96) from 1
    4       [32, 48) x [0, 96)  [32, 64) x [0, 24)   [48, 64) x [0, 24) from 6
    5       [32, 48) x [0, 96)  [32, 64) x [24, 48)  [48, 64) x [24, 48) from 7
    6       [48, 64) x [0, 96)  [32, 64) x [48, 72)  [32, 48) x [48, 72) from 4
    7       [48, 64) x [0, 96)  [32, 64) x [72, 96)  [32, 48) x [72, 96) from 5

Form: slots; XLA packs thin tiles densely into slots, and unpacks them.
The wire carries 1.333 times the bytes of the tiles.
The busiest device receives 512 bytes, padding included.
HBM traffic is 19.33 times the least possible.
The staging area has 3,072 bytes of HBM.

Emitted by
    shardwright emit --mesh x=4,y=2 --shape 64x96 --dtype int8 --source '[{"x"}, {}]' --target '[{"x":(1)2}, {"x":(2)2, "y"}]' --name sub_axes_after_reshape
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
from .._support.pallas_dense import Dense
from .._support.pallas_integers import far_apart, maximum, minimum
from .._support.pallas_own import kept_by
from .._support.pallas_peers import div, each, operand, rem, remote_copy, signal, wait_for
from .._support.pallas_pieces import Forms, Peers
from .._support.pallas_slots import Slots, slot_number

require("pallas_tpu", "24fecbfefb230f2f", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (64, 96)
DTYPE = "int8"
SOURCE_MESH = TARGET_MESH = '<["x"=4, "y"=2]>'
SOURCE = '[{"x"}, {}]'
TARGET = '[{"x":(1)2}, {"x":(2)2, "y"}]'
LOCAL_SOURCE_SHAPE = (16, 96)
LOCAL_TARGET_SHAPE = (32, 24)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "efe0dbc02bfb97fd"  # hash of the plan: equal on all processes that exchange
# The meshes, their axes refined into the sub-axes in use.
SOURCE_AXES = (("x", 4), ("y", 2))
TARGET_AXES = (("x:(1)2", 2), ("x:(2)2", 2), ("y", 2))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 512  # received by the busiest device, padding included
COLLECTIVE_ID = 1848


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return div(position, 2), 0


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return div(position, 4), rem(position, 4)


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = div(position, 2) * 16
    return lo0, lo0 + 16, 0, 96


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = div(position, 4) * 32
    lo1 = rem(position, 4) * 24
    return lo0, lo0 + 32, lo1, lo1 + 24


def tile(a0, a1, b0, b1):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_lo0 = a0 * 16
    target_lo0 = b0 * 32
    target_lo1 = b1 * 24
    return (
        maximum(source_lo0, target_lo0),
        minimum(source_lo0 + 16, target_lo0 + 32),
        target_lo1,
        target_lo1 + 24,
    )


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    first0 = div(position, 4) * 2
    return first0, 2, 0, 1


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    first0 = div(position, 4)
    return first0, 1, 0, 4


def target_position(b0, b1, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return b0 * 4 + b1


def holder(a0, a1, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0 * 2 + rem(receiver, 2)


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("x", None))
_TARGET = Sharded(
    TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("x:(1)2", ("x:(2)2", "y"))
)
PEERS = Peers(
    _SOURCE,
    _TARGET,
    Forms(source_shard, target_shard, tile, senders, receivers, target_position, holder),
)


# Number of 512-byte granules in a slot: ceil(384 / 512).
SLOT = Dense((1, 4, 128), (16, 24))


def _at(slots, place, box):
    """Return the granules of a slot that a tile's tensor box fills."""
    size = maximum(box[1] - box[0], 0) * 24
    return slots.at[operand(place), pl.ds(0, div(size + 511, 512)), :, :]


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
    (4, 2),  # slots: up to 1 x 4 tiles leave a device, 2 x 1 come
    collective_id=COLLECTIVE_ID,
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
