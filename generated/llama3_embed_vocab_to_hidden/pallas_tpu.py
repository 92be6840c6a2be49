"""Reshards bfloat16[128256, 8192] over 8 devices: [{"x"}, {}] -> [{}, {"x"}].

Source: [{"x"}, {}] on <["x"=8]>, shards of 16032 x 8192.
    d1(x)[k0, k1] -> t[x * 16032 + k0, k1]
Target: [{}, {"x"}] on <["x"=8]>, shards of 128256 x 1024.
    d2(x)[k0, k1] -> t[k0, x * 1024 + k1]

Along dimension 0, source shards of 16032 meet target shards of 128256: 8 source shards for each
    target shard.
Along dimension 1, source shards of 8192 meet target shards of 1024: 1 source shard for each target
    shard.
No device receives over 229834752 bytes or sends over 229834752, the least possible.
All devices together receive 1838678016.

A device sends the intersection of its range before and the receiver's after.

    device  before                        after                       receives
    0       [0, 16032) x [0, 8192)        [0, 128256) x [0, 1024)     from 1, 2, 3, 4, 5, 6, 7
    1       [16032, 32064) x [0, 8192)    [0, 128256) x [1024, 2048)  from 0, 2, 3, 4, 5, 6, 7
    2       [32064, 48096) x [0, 8192)    [0, 128256) x [2048, 3072)  from 0, 1, 3, 4, 5, 6, 7
    3       [48096, 64128) x [0, 8192)    [0, 128256) x [3072, 4096)  from 0, 1, 2, 4, 5, 6, 7
    4       [64128, 80160) x [0, 8192)    [0, 128256) x [4096, 5120)  from 0, 1, 2, 3, 5, 6, 7
    5       [80160, 96192) x [0, 8192)    [0, 128256) x [5120, 6144)  from 0, 1, 2, 3, 4, 6, 7
    6       [96192, 112224) x [0, 8192)   [0, 128256) x [6144, 7168)  from 0, 1, 2, 3, 4, 5, 7
    7       [112224, 128256) x [0, 8192)  [0, 128256) x [7168, 8192)  from 0, 1, 2, 3, 4, 5, 6

Form: direct; tiles go by DMA from shard to shard.
The wire carries 1.000 times the bytes of the tiles.
The busiest device receives 229,834,752 bytes, padding included.
HBM traffic is 1.00 times the least possible.
Where the result leaves the program XLA copies it once more.

Emitted by
    shardwright emit --mesh x=8 --shape 128256x8192 --dtype bfloat16 --source '[{"x"}, {}]' --target '[{}, {"x"}]' --name llama3_embed_vocab_to_hidden
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
from .._support.pallas_peers import each, rem, remote_copy, signal, wait_for
from .._support.pallas_permuted import Permuted

require("pallas_tpu", "24fecbfefb230f2f", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (128256, 8192)
DTYPE = "bfloat16"
SOURCE_MESH = TARGET_MESH = '<["x"=8]>'
SOURCE = '[{"x"}, {}]'
TARGET = '[{}, {"x"}]'
LOCAL_SOURCE_SHAPE = (16032, 8192)
LOCAL_TARGET_SHAPE = (128256, 1024)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "b78edc7f091b6913"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("x", 8),)
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 229834752  # received by the busiest device, padding included
COLLECTIVE_ID = 14656


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position * 16032
    return lo0, lo0 + 16032, 0, 8192


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo1 = position * 1024
    return 0, 128256, lo1, lo1 + 1024


def receiver(sender, number):
    """The device that the tile of a number of a source shard goes to."""
    return rem(number + sender, 8)


def sender(receiver, number):
    """The device that the tile of a number of a target shard comes from."""
    return number


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("x", None))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P(None, "x"))
PEERS = Permuted(_SOURCE, _TARGET, sender, receiver, 8)


TILE = (16032, 1024)  # the extents of every tile, in kernel order
# The order of pushes: successive receivers are far apart, so that all links are busy.
ROUNDS = (0, 3, 6, 1, 4, 7, 2, 5)


def _start(x, y, sent, received):
    """Begin to push tiles of x, this device's source shard, to others' target shard, y.

    DMA semaphores: `sent` counts bytes leaving x, `received` bytes arriving in y.
    """
    me = lax.axis_index("x")
    barrier = pltpu.get_barrier_semaphore()

    def tell(number):  # from here on a tile's sender may write to y
        peer = sender(me, number)
        pl.when(peer != me)(lambda: signal(barrier, peer))

    def hear(number):
        peer = receiver(me, number)
        pl.when(peer != me)(lambda: pl.semaphore_wait(barrier, 1))  # 1 from each receiver

    def push(number):
        peer = receiver(me, number)
        in_x = (0, peer * 1024)
        in_y = (me * 16032, 0)
        read, write = tile_at(x, in_x, TILE), tile_at(y, in_y, TILE)
        pl.when(peer != me)(lambda: remote_copy(read, write, sent, received, peer).start())
        pl.when(peer == me)(lambda: pltpu.make_async_copy(read, write, received).start())

    each(8, tell)
    each(8, hear)
    for number in ROUNDS:
        push(number)


def _wait(y, sent, received):
    """Wait until this device's tiles have left, and all of y, its target shard, has arrived."""
    me = lax.axis_index("x")
    tile = tile_at(y, (0, 0), TILE)

    def leave(number):
        sends = receiver(me, number) != me
        pl.when(sends)(lambda: wait_for(tile, sent))  # 32,833,536 bytes of each tile pushed

    wait_for(y, received)  # 262,668,288 bytes: its tiles, pushed by others or kept here
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
