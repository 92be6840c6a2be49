"""Reshards float32[6, 6] over 6 devices: [{"x"}, {"y"}] -> [{"y"}, {"x"}].

Source: [{"x"}, {"y"}] on <["x"=2, "y"=3]>, shards of 3 x 2.
    d1(x, y)[k0, k1] -> t[x * 3 + k0, y * 2 + k1]
Target: [{"y"}, {"x"}] on <["x"=2, "y"=3]>, shards of 2 x 3.
    d2(x, y)[k0, k1] -> t[y * 2 + k0, x * 3 + k1]

Along dimension 0, source shards of 3 meet target shards of 2: up to 2 source shards for each target
    shard.
Along dimension 1, source shards of 2 meet target shards of 3: 2 source shards for each target
    shard.
No device receives over 24 bytes or sends over 24, the least possible.
All devices together receive 104.

    device  before           after            receives
    0       [0, 3) x [0, 2)  [0, 2) x [0, 3)  [0, 2) x [2, 3) from 1
    1       [0, 3) x [2, 4)  [2, 4) x [0, 3)  [2, 3) x [0, 2) from 0, [3, 4) x [0, 2) from 3,
                                              [3, 4) x [2, 3) from 4
    2       [0, 3) x [4, 6)  [4, 6) x [0, 3)  [4, 6) x [0, 2) from 3, [4, 6) x [2, 3) from 4
    3       [3, 6) x [0, 2)  [0, 2) x [3, 6)  [0, 2) x [3, 4) from 1, [0, 2) x [4, 6) from 2
    4       [3, 6) x [2, 4)  [2, 4) x [3, 6)  [2, 3) x [3, 4) from 1, [2, 3) x [4, 6) from 2,
                                              [3, 4) x [4, 6) from 5
    5       [3, 6) x [4, 6)  [4, 6) x [3, 6)  [4, 6) x [3, 4) from 4

Form: slots; XLA packs thin tiles densely into slots, and unpacks them.
The wire carries 59.077 times the bytes of the tiles.
The busiest device receives 1,536 bytes, padding included.
HBM traffic is 547.56 times the least possible.
The staging area has 4,096 bytes of HBM.

Emitted by
    shardwright emit --mesh x=2,y=3 --shape 6x6 --dtype float32 --source '[{"x"}, {"y"}]' --target '[{"y"}, {"x"}]' --backends pallas_tpu,triton_gpu,jax_xla --name transpose_2x3
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
from .._support.pallas_integers import far_apart, maximum, minimum
from .._support.pallas_own import kept_by
from .._support.pallas_peers import div, each, operand, rem, remote_copy, signal, wait_for
from .._support.pallas_pieces import Forms, Peers
from .._support.pallas_slots import Slots, slot_number

require("pallas_tpu", "24fecbfefb230f2f", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (6, 6)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=3]>'
SOURCE = '[{"x"}, {"y"}]'
TARGET = '[{"y"}, {"x"}]'
LOCAL_SOURCE_SHAPE = (3, 2)
LOCAL_TARGET_SHAPE = (2, 3)
SOURCE_IDS = TARGET_IDS = range(6)  # by mesh position
PLAN = "360c3f1aba5d3d82"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("x", 2), ("y", 3))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 1536  # received by the busiest device, padding included
COLLECTIVE_ID = 26372


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return div(position, 3), rem(position, 3)


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return rem(position, 3), div(position, 3)


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = div(position, 3) * 3
    lo1 = rem(position, 3) * 2
    return lo0, lo0 + 3, lo1, lo1 + 2


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = rem(position, 3) * 2
    lo1 = div(position, 3) * 3
    return lo0, lo0 + 2, lo1, lo1 + 3


def tile(a0, a1, b0, b1):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_lo0 = a0 * 3
    target_lo0 = b0 * 2
    source_lo1 = a1 * 2
    target_lo1 = b1 * 3
    return (
        maximum(source_lo0, target_lo0),
        minimum(source_lo0 + 3, target_lo0 + 2),
        maximum(source_lo1, target_lo1),
        minimum(source_lo1 + 2, target_lo1 + 3),
    )


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    first0 = div(rem(position, 3) * 2, 3)
    first1 = div(div(position, 3) * 3, 2)
    return first0, div(rem(position, 3) * 2 + 1, 3) + 1 - first0, first1, 2


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    first0 = div(div(position, 3) * 3, 2)
    first1 = div(rem(position, 3) * 2, 3)
    return first0, 2, first1, div(rem(position, 3) * 2 + 1, 3) + 1 - first1


def target_position(b0, b1, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return b1 * 3 + b0


def holder(a0, a1, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0 * 3 + a1


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("x", "y"))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("y", "x"))
PEERS = Peers(
    _SOURCE,
    _TARGET,
    Forms(source_shard, target_shard, tile, senders, receivers, target_position, holder),
)


# Number of 512-byte granules in a slot: ceil(4 / 128).
SLOT = Dense((1, 1, 128), (2, 2))


def _at(slots, place, box):
    """Return the granules of a slot that a tile's tensor box fills."""
    size = maximum(box[1] - box[0], 0) * 2
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
    source_reach=(4, 3),  # of the last windows, in a shard of 3 x 2
    target_reach=(3, 4),  # of the last windows, in a shard of 2 x 3
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
