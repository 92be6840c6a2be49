"""Reshards int32[6] over 6 devices: [{"x"}] -> [{}].

Source: [{"x"}] on <["x"=2, "y"=3]>, shards of 3.
    d1(x, y)[k0] -> t[x * 3 + k0]
Target: [{}] on <["x"=2, "y"=3]>, shards of 6.
    d2(x, y)[k0] -> t[k0]

Along dimension 0, source shards of 3 meet target shards of 6: 2 source shards for each target
    shard.
Of the 3 holders of a tile, the sender is the one whose coordinates along the axes that do not split
    the source equal the receiver's.
No device receives over 12 bytes or sends over 12, the least possible.
All devices together receive 72.

    device  before  after   receives
    0       [0, 3)  [0, 6)  [3, 6) from 3
    1       [0, 3)  [0, 6)  [3, 6) from 4
    2       [0, 3)  [0, 6)  [3, 6) from 5
    3       [3, 6)  [0, 6)  [0, 3) from 0
    4       [3, 6)  [0, 6)  [0, 3) from 1
    5       [3, 6)  [0, 6)  [0, 3) from 2

Form: slots; XLA packs thin tiles densely into slots, and unpacks them.
The wire carries 42.667 times the bytes of the tiles.
The busiest device receives 512 bytes, padding included.
HBM traffic is 682.67 times the least possible.
The staging area has 1,536 bytes of HBM.

Emitted by
    shardwright emit --mesh x=2,y=3 --shape 6 --dtype int32 --source '[{"x"}]' --target '[{}]' --name gather_2x3
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.pallas_tpu` in the folder that contains FOLDER")
if __name__ == "__main__":  # one spare device, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=7")

from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

from .._support import require
from .._support.jax_host import OneOrder
from .._support.jax_meshes import Sharded
from .._support.pallas_dense import Dense
from .._support.pallas_integers import far_apart, maximum
from .._support.pallas_own import kept_by
from .._support.pallas_peers import div, each, operand, rem, remote_copy, signal, wait_for
from .._support.pallas_pieces import Forms, Peers
from .._support.pallas_slots import Slots, slot_number

require("pallas_tpu", "24fecbfefb230f2f", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (6,)
DTYPE = "int32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=3]>'
SOURCE = '[{"x"}]'
TARGET = "[{}]"
LOCAL_SOURCE_SHAPE = (3,)
LOCAL_TARGET_SHAPE = (6,)
SOURCE_IDS = TARGET_IDS = range(6)  # by mesh position
PLAN = "1703689f30b879a0"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("x", 2), ("y", 3))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 512  # received by the busiest device, padding included
COLLECTIVE_ID = 20568


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return (div(position, 3),)


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return (0,)


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = div(position, 3) * 3
    return lo0, lo0 + 3


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    return 0, 6


def tile(a0, b0):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_lo0 = a0 * 3
    return source_lo0, source_lo0 + 3


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    return 0, 2


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    return 0, 1


def target_position(b0, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return replica


def holder(a0, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0 * 3 + rem(receiver, 3)


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("x"))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P(None))
PEERS = Peers(
    _SOURCE,
    _TARGET,
    Forms(source_shard, target_shard, tile, senders, receivers, target_position, holder),
    replicas=6,
)


# Number of 512-byte granules in a slot: ceil(3 / 128).
SLOT = Dense((1, 1, 128), (3,))


def _at(slots, place, box):
    """Return the granules of a slot that a tile's tensor box fills."""
    size = maximum(box[1] - box[0], 0) * 1
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
    (1, 2),  # slots: up to 1 tiles leave a device, 2 come
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
