"""Reshards bfloat16[28672, 8192] over 8 devices: [{"model"}, {"data"}] -> [{"data", "model"}, {}].

Source: [{"model"}, {"data"}] on <["data"=2, "model"=4]>, shards of 7168 x 4096.
    d1(data, model)[k0, k1] -> t[model * 7168 + k0, data * 4096 + k1]
Target: [{"data", "model"}, {}] on <["data"=2, "model"=4]>, shards of 3584 x 8192.
    d2(data, model)[k0, k1] -> t[data * 14336 + model * 3584 + k0, k1]

Along dimension 0, source shards of 7168 meet target shards of 3584: 1 source shard for each target
    shard.
Along dimension 1, source shards of 4096 meet target shards of 8192: 2 source shards for each target
    shard.
No device receives over 58720256 bytes or sends over 58720256, the least possible.
All devices together receive 411041792.

    device  before                         after
    0       [0, 7168) x [0, 4096)          [0, 3584) x [0, 8192)
            receives [0, 3584) x [4096, 8192) from 4
    1       [7168, 14336) x [0, 4096)      [3584, 7168) x [0, 8192)
            receives [3584, 7168) x [0, 4096) from 0, [3584, 7168) x [4096, 8192) from 4
    2       [14336, 21504) x [0, 4096)     [7168, 10752) x [0, 8192)
            receives [7168, 10752) x [0, 4096) from 1, [7168, 10752) x [4096, 8192) from 5
    3       [21504, 28672) x [0, 4096)     [10752, 14336) x [0, 8192)
            receives [10752, 14336) x [0, 4096) from 1, [10752, 14336) x [4096, 8192) from 5
    4       [0, 7168) x [4096, 8192)       [14336, 17920) x [0, 8192)
            receives [14336, 17920) x [0, 4096) from 2, [14336, 17920) x [4096, 8192) from 6
    5       [7168, 14336) x [4096, 8192)   [17920, 21504) x [0, 8192)
            receives [17920, 21504) x [0, 4096) from 2, [17920, 21504) x [4096, 8192) from 6
    6       [14336, 21504) x [4096, 8192)  [21504, 25088) x [0, 8192)
            receives [21504, 25088) x [0, 4096) from 3, [21504, 25088) x [4096, 8192) from 7
    7       [21504, 28672) x [4096, 8192)  [25088, 28672) x [0, 8192)
            receives [25088, 28672) x [0, 4096) from 3

Form: direct; tiles go by DMA from shard to shard.
The wire carries 1.000 times the bytes of the tiles.
The busiest device receives 58,720,256 bytes, padding included.
HBM traffic is 1.00 times the least possible.
Where the result leaves the program XLA copies it once more.

Emitted by
    shardwright emit --mesh data=2,model=4 --shape 28672x8192 --dtype bfloat16 --source '[{"model"}, {"data"}]' --target '[{"data", "model"}, {}]' --backends pallas_tpu,triton_gpu,jax_xla --name llama3_70b_down_tp_to_fsdp
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

SHAPE = (28672, 8192)
DTYPE = "bfloat16"
SOURCE_MESH = TARGET_MESH = '<["data"=2, "model"=4]>'
SOURCE = '[{"model"}, {"data"}]'
TARGET = '[{"data", "model"}, {}]'
LOCAL_SOURCE_SHAPE = (7168, 4096)
LOCAL_TARGET_SHAPE = (3584, 8192)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "ef3960b3b2f47e46"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("data", 2), ("model", 4))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 58720256  # received by the busiest device, padding included
COLLECTIVE_ID = 18032


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = rem(position, 4) * 7168
    lo1 = div(position, 4) * 4096
    return lo0, lo0 + 7168, lo1, lo1 + 4096


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position * 3584
    return lo0, lo0 + 3584, 0, 8192


def receiver(sender, number):
    """The device that the tile of a number of a source shard goes to."""
    return rem(sender, 4) * 2 + rem(number + sender, 2)


def sender(receiver, number):
    """The device that the tile of a number of a target shard comes from."""
    return number * 4 + div(receiver, 2)


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("model", "data"))
_TARGET = Sharded(
    TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P(("data", "model"), None)
)
PEERS = Permuted(_SOURCE, _TARGET, sender, receiver, 2)


TILE = (3584, 4096)  # the extents of every tile, in kernel order
# The order of pushes: successive receivers are far apart, so that all links are busy.
ROUNDS = (0, 1)


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
        in_x = (rem(peer, 2) * 3584, 0)
        in_y = (0, div(me, 4) * 4096)
        read, write = tile_at(x, in_x, TILE), tile_at(y, in_y, TILE)
        pl.when(peer != me)(lambda: remote_copy(read, write, sent, received, peer).start())
        pl.when(peer == me)(lambda: pltpu.make_async_copy(read, write, received).start())

    each(2, tell)
    each(2, hear)
    for number in ROUNDS:
        push(number)


def _wait(y, sent, received):
    """Wait until this device's tiles have left, and all of y, its target shard, has arrived."""
    me = lax.axis_index(("data", "model"))
    tile = tile_at(y, (0, 0), TILE)

    def leave(number):
        sends = receiver(me, number) != me
        pl.when(sends)(lambda: wait_for(tile, sent))  # 29,360,128 bytes of each tile pushed

    wait_for(y, received)  # 58,720,256 bytes: its tiles, pushed by others or kept here
    each(2, leave)


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
