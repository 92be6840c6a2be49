"""Reshards bfloat16[8192, 8192] over 8 devices: [{"data", "model"}, {}] -> [{}, {"model"}].

Source: [{"data", "model"}, {}] on <["data"=2, "model"=4]>, shards of 1024 x 8192.
    d1(data, model)[k0, k1] -> t[data * 4096 + model * 1024 + k0, k1]
Target: [{}, {"model"}] on <["data"=2, "model"=4]>, shards of 8192 x 2048.
    d2(data, model)[k0, k1] -> t[k0, model * 2048 + k1]

Along dimension 0, source shards of 1024 meet target shards of 8192: 8 source shards for each target
    shard.
Along dimension 1, source shards of 8192 meet target shards of 2048: 1 source shard for each target
    shard.
No device receives over 29360128 bytes or sends over 29360128, the least possible.
All devices together receive 234881024.

A device sends the intersection of its range before and the receiver's after.

    device  before                    after                     receives
    0       [0, 1024) x [0, 8192)     [0, 8192) x [0, 2048)     from 1, 2, 3, 4, 5, 6, 7
    1       [1024, 2048) x [0, 8192)  [0, 8192) x [2048, 4096)  from 0, 2, 3, 4, 5, 6, 7
    2       [2048, 3072) x [0, 8192)  [0, 8192) x [4096, 6144)  from 0, 1, 3, 4, 5, 6, 7
    3       [3072, 4096) x [0, 8192)  [0, 8192) x [6144, 8192)  from 0, 1, 2, 4, 5, 6, 7
    4       [4096, 5120) x [0, 8192)  [0, 8192) x [0, 2048)     from 0, 1, 2, 3, 5, 6, 7
    5       [5120, 6144) x [0, 8192)  [0, 8192) x [2048, 4096)  from 0, 1, 2, 3, 4, 6, 7
    6       [6144, 7168) x [0, 8192)  [0, 8192) x [4096, 6144)  from 0, 1, 2, 3, 4, 5, 7
    7       [7168, 8192) x [0, 8192)  [0, 8192) x [6144, 8192)  from 0, 1, 2, 3, 4, 5, 6

Form: direct; tiles go by DMA from shard to shard.
The wire carries 1.000 times the bytes of the tiles.
The busiest device receives 29,360,128 bytes, padding included.
HBM traffic is 1.00 times the least possible.
Where the result leaves the program XLA copies it once more.

Emitted by
    shardwright emit --mesh data=2,model=4 --shape 8192x8192 --dtype bfloat16 --source '[{"data", "model"}, {}]' --target '[{}, {"model"}]' --backends pallas_tpu,triton_gpu,jax_xla --name llama3_70b_wq_fsdp_to_tp
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.pallas_tpu` in the folder that contains FOLDER")
if __name__ == "__main__":  # one spare device, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=9")

from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

from .._support import require
from .._support.jax_host import OneOrder
from .._support.jax_meshes import Sharded
from .._support.pallas_direct import Direct, tile_at
from .._support.pallas_peers import div, each, rem, remote_copy, signal, wait_for
from .._support.pallas_permuted import Permuted

require("pallas_tpu", "24fecbfefb230f2f", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (8192, 8192)
DTYPE = "bfloat16"
SOURCE_MESH = TARGET_MESH = '<["data"=2, "model"=4]>'
SOURCE = '[{"data", "model"}, {}]'
TARGET = '[{}, {"model"}]'
LOCAL_SOURCE_SHAPE = (1024, 8192)
LOCAL_TARGET_SHAPE = (8192, 2048)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "9b2f2d590602314f"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("data", 2), ("model", 4))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 29360128  # received by the busiest device, padding included
COLLECTIVE_ID = 3804


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position * 1024
    return lo0, lo0 + 1024, 0, 8192


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo1 = rem(position, 4) * 2048
    return 0, 8192, lo1, lo1 + 2048


def receiver(sender, number):
    """The device that the tile of a number of a source shard goes to."""
    return rem(number + sender, 2) * 4 + rem(div(number, 2) + rem(sender, 4), 4)


def sender(receiver, number):
    """The device that the tile of a number of a target shard comes from."""
    return number


_SOURCE = Sharded(
    SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P(("data", "model"), None)
)
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P(None, "model"))
PEERS = Permuted(_SOURCE, _TARGET, sender, receiver, 8)


TILE = (1024, 2048)  # the extents of every tile, in kernel order
# The order of pushes: successive receivers are far apart, so that all links are busy.
ROUNDS = (0, 3, 6, 1, 4, 7, 2, 5)


def _start(x, y, sent, received):
    """Begin to push tiles of x, this device's source shard, to others' target shard, y.

    DMA semaphores: `sent` counts bytes leaving x, `received` bytes arriving in y.
    """
    me = lax.axis_index(("data", "model"))
    barrier = pltpu.get_barrier_semaphore()

    def tell(number):  # from here on a tile's sender may write to y
        peer = sender(me, number)
        pl.when(peer != me)(lambda: signal(barrier, peer))

    def hear(number):
        peer = receiver(me, number)
        pl.when(peer != me)(lambda: pl.semaphore_wait(barrier, 1))  # 1 from each receiver

    def push(number):
        peer = receiver(me, number)
        in_x = (0, rem(peer, 4) * 2048)
        in_y = (me * 1024, 0)
        read, write = tile_at(x, in_x, TILE), tile_at(y, in_y, TILE)
        pl.when(peer != me)(lambda: remote_copy(read, write, sent, received, peer).start())
        pl.when(peer == me)(lambda: pltpu.make_async_copy(read, write, received).start())

    each(8, tell)
    each(8, hear)
    for number in ROUNDS:
        push(number)


def _wait(y, sent, received):
    """Wait until this device's tiles have left, and all of y, its target shard, has arrived."""
    me = lax.axis_index(("data", "model"))
    tile = tile_at(y, (0, 0), TILE)

    def leave(number):
        sends = receiver(me, number) != me
        pl.when(sends)(lambda: wait_for(tile, sent))  # 4,194,304 bytes of each tile pushed

    wait_for(y, received)  # 33,554,432 bytes: its tiles, pushed by others or kept here
    each(8, leave)


def _kernel(_order, x, y, sent, received):
    """Push tiles of x, and wait for the tiles of y; all peers follow from the device's position."""
    _start(x, y, sent, received)
    _wait(y, sent, received)


_PROGRAM = Direct(_kernel, 2, PEERS, (0, 1), collective_id=COLLECTIVE_ID, bits="interpreted")
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
