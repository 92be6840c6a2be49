"""Reshards bfloat16[10, 9] over 7 devices: [{"data", "model"}, {}] -> [{}, {"tp"}].

Source: [{"data", "model"}, {}] on <["data"=2, "model"=2]>, shards of 3 x 9.
    d1(data, model)[k0, k1] -> t[data * 6 + model * 3 + k0, k1]
    The last shards along dimension 0 are short or empty; they are padded at the end to 3 x 9.
Target: [{}, {"tp"}] on <["tp"=3]> (device ids below), shards of 10 x 3.
    d2(tp)[k0, k1] -> t[k0, tp * 3 + k1]

Along dimension 0, source shards of 3 meet target shards of 10: 4 source shards for each target
    shard.
Along dimension 1, source shards of 9 meet target shards of 3: 1 source shard for each target shard.
No device receives over 60 bytes or sends over 54, the least possible.
All devices together receive 180.

    device  before            after             receives
    0       [0, 3) x [0, 9)   -                 nothing
    1       [3, 6) x [0, 9)   -                 nothing
    2       [6, 9) x [0, 9)   -                 nothing
    3       [9, 10) x [0, 9)  -                 nothing
    4       -                 [0, 10) x [0, 3)  [0, 3) x [0, 3) from 0, [3, 6) x [0, 3) from 1,
                                                [6, 9) x [0, 3) from 2, [9, 10) x [0, 3) from 3
    5       -                 [0, 10) x [3, 6)  [0, 3) x [3, 6) from 0, [3, 6) x [3, 6) from 1,
                                                [6, 9) x [3, 6) from 2, [9, 10) x [3, 6) from 3
    6       -                 [0, 10) x [6, 9)  [0, 3) x [6, 9) from 0, [3, 6) x [6, 9) from 1,
                                                [6, 9) x [6, 9) from 2, [9, 10) x [6, 9) from 3

Form: slots; XLA packs thin tiles densely into slots, and unpacks them.
The wire carries 34.133 times the bytes of the tiles.
The busiest device receives 2,048 bytes, padding included.
HBM traffic is 204.80 times the least possible.
The staging area has 3,584 bytes of HBM.

Emitted by
    shardwright emit --mesh data=2,model=2 --shape 10x9 --dtype bfloat16 --source '[{"data", "model"}, {}]' --target '[{}, {"tp"}]' --target-mesh '<["tp"=3], device_ids=[4, 5, 6]>' --name trainer_to_server
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.pallas_tpu` in the folder that contains FOLDER")
if __name__ == "__main__":  # one spare device, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

from .._support import require
from .._support.jax_meshes import Sharded
from .._support.jax_orders import TwoOrders
from .._support.jax_padding import Padding
from .._support.pallas_dense import Dense
from .._support.pallas_integers import far_apart, maximum, minimum
from .._support.pallas_peers import div, each, operand, remote_copy, signal, wait_for
from .._support.pallas_pieces import Forms
from .._support.pallas_ranks import RankedPeers
from .._support.pallas_slots import Slots, slot_number

require("pallas_tpu", "24fecbfefb230f2f", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (10, 9)
DTYPE = "bfloat16"
SOURCE_MESH = '<["data"=2, "model"=2]>'
TARGET_MESH = '<["tp"=3], device_ids=[4, 5, 6]>'
SOURCE = '[{"data", "model"}, {}]'
TARGET = '[{}, {"tp"}]'
LOCAL_SOURCE_SHAPE = (3, 9)
LOCAL_TARGET_SHAPE = (10, 3)
# Device ids by mesh position.
SOURCE_IDS = range(4)
TARGET_IDS = range(4, 7)
PLAN = "428ecfb4d50de6c3"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = (("data", 2), ("model", 2))
TARGET_AXES = (("tp", 3),)
# The shapes of global arrays, every shard padded at its end to the largest.
PADDED_SOURCE_SHAPE = (12, 9)
PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 2048  # received by the busiest device, padding included
COLLECTIVE_ID = 16268


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return position, 0


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return 0, position


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position * 3
    return lo0, minimum(lo0 + 3, 10), 0, 9


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo1 = position * 3
    return 0, 10, lo1, lo1 + 3


def tile(a0, a1, b0, b1):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_lo0 = a0 * 3
    target_lo1 = b1 * 3
    return source_lo0, minimum(source_lo0 + 3, 10), target_lo1, target_lo1 + 3


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    return 0, 4, 0, 1


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    return 0, 1, 0, 3


def target_position(b0, b1, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return b1


def holder(a0, a1, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0


_SOURCE = Sharded(
    SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P(("data", "model"), None)
)
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P(None, "tp"))
PEERS = RankedPeers(
    _SOURCE,
    _TARGET,
    Forms(source_shard, target_shard, tile, senders, receivers, target_position, holder),
    kept=False,
)


# Number of 512-byte granules in a slot: ceil(9 / 256).
SLOT = Dense((1, 2, 128), (3, 3))


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
    (3, 4),  # slots: up to 1 x 3 tiles leave a device, 4 x 1 come
    target_reach=(12, 3),  # of the last windows, in a shard of 10 x 3
    collective_id=COLLECTIVE_ID,
    bits="always",
)


_HOST = TwoOrders(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM, padding=Padding)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
