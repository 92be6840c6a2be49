"""Reshards bfloat16[8, 6] over 4 devices: [{"x"}, {"y"}] -> [{"x"}, {"y"}].

Source: [{"x"}, {"y"}] on <["x"=2, "y"=2]>, shards of 4 x 3.
    d1(x, y)[k0, k1] -> t[x * 4 + k0, y * 3 + k1]
Target: [{"x"}, {"y"}] on <["x"=2, "y"=2]> (device ids below), shards of 4 x 3.
    d2(x, y)[k0, k1] -> t[x * 4 + k0, y * 3 + k1]

No device receives over 24 bytes or sends over 24, the least possible.
All devices together receive 96.

A permutation: every shard goes whole to one device.

    device          0  1  2  3
    sends to        3  2  1  0
    receives from   3  2  1  0

Form: slots; XLA packs thin tiles densely into slots, and unpacks them.
The wire carries 21.333 times the bytes of the tiles.
The busiest device receives 512 bytes, padding included.
HBM traffic is 160.00 times the least possible.
The staging area has 1,024 bytes of HBM.

Emitted by
    shardwright emit --mesh x=2,y=2 --shape 8x6 --dtype bfloat16 --source '[{"x"}, {"y"}]' --target '[{"x"}, {"y"}]' --target-mesh '<["x"=2, "y"=2], device_ids=[3, 2, 1, 0]>' --name reversed_devices
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.pallas_tpu` in the folder that contains FOLDER")
if __name__ == "__main__":  # one spare device, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=5")

from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

from .._support import require
from .._support.jax_meshes import Sharded
from .._support.jax_orders import TwoOrders
from .._support.pallas_dense import Dense
from .._support.pallas_integers import far_apart, maximum, minimum
from .._support.pallas_peers import div, each, operand, rem, remote_copy, signal, wait_for
from .._support.pallas_pieces import Forms
from .._support.pallas_ranks import RankedPeers
from .._support.pallas_slots import Slots, slot_number

require("pallas_tpu", "24fecbfefb230f2f", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (8, 6)
DTYPE = "bfloat16"
SOURCE_MESH = '<["x"=2, "y"=2]>'
TARGET_MESH = '<["x"=2, "y"=2], device_ids=[3, 2, 1, 0]>'
SOURCE = '[{"x"}, {"y"}]'
TARGET = '[{"x"}, {"y"}]'
LOCAL_SOURCE_SHAPE = LOCAL_TARGET_SHAPE = (4, 3)
# Device ids by mesh position.
SOURCE_IDS = range(4)
TARGET_IDS = (3, 2, 1, 0)
PLAN = "bd00e7cba3915f9c"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("x", 2), ("y", 2))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 512  # received by the busiest device, padding included
COLLECTIVE_ID = 23748


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return div(position, 2), rem(position, 2)


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return div(position, 2), rem(position, 2)


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = div(position, 2) * 4
    lo1 = rem(position, 2) * 3
    return lo0, lo0 + 4, lo1, lo1 + 3


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = div(position, 2) * 4
    lo1 = rem(position, 2) * 3
    return lo0, lo0 + 4, lo1, lo1 + 3


def tile(a0, a1, b0, b1):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_lo0 = a0 * 4
    target_lo0 = b0 * 4
    source_lo1 = a1 * 3
    target_lo1 = b1 * 3
    return (
        maximum(source_lo0, target_lo0),
        minimum(source_lo0 + 4, target_lo0 + 4),
        maximum(source_lo1, target_lo1),
        minimum(source_lo1 + 3, target_lo1 + 3),
    )


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    first0 = div(position, 2)
    first1 = rem(position, 2)
    return first0, 1, first1, 1


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    first0 = div(position, 2)
    first1 = rem(position, 2)
    return first0, 1, first1, 1


def target_position(b0, b1, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return b0 * 2 + b1


def holder(a0, a1, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0 * 2 + a1


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("x", "y"))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("x", "y"))
PEERS = RankedPeers(
    _SOURCE,
    _TARGET,
    Forms(source_shard, target_shard, tile, senders, receivers, target_position, holder),
    kept=False,
)


# Number of 512-byte granules in a slot: ceil(12 / 256).
SLOT = Dense((1, 2, 128), (4, 3))


def _at(slots, place, box):
    """Return the granules of a slot that a tile's tensor box fills."""
    size = maximum(box[1] - box[0], 0) * 3
    return slots.at[operand(place), pl.ds(0, div(size + 255, 256)), :, :]


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
    each(count, leave)
    each(PEERS.incoming_count(receiver), arrive)


_PROGRAM = Slots(
    _kernel,
    PEERS,
    SLOT,
    (1, 1),  # slots: up to 1 x 1 tiles leave a device, 1 x 1 come
    collective_id=COLLECTIVE_ID,
    bits="always",
)


_HOST = TwoOrders(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
