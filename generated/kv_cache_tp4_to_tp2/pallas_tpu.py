"""Reshards bfloat16[32, 2048, 8, 128] over 4 devices: [{}, {}, {"a", "b"}, {}] -> [{"b"}, {},
    {"a"}, {}].

Source: [{}, {}, {"a", "b"}, {}] on <["a"=2, "b"=2]>, shards of 32 x 2048 x 2 x 128.
    d1(a, b)[k0, k1, k2, k3] -> t[k0, k1, a * 4 + b * 2 + k2, k3]
Target: [{"b"}, {}, {"a"}, {}] on <["a"=2, "b"=2]>, shards of 16 x 2048 x 4 x 128.
    d2(a, b)[k0, k1, k2, k3] -> t[b * 16 + k0, k1, a * 4 + k2, k3]

Along dimension 0, source shards of 32 meet target shards of 16: 1 source shard for each target
    shard.
Along dimension 2, source shards of 2 meet target shards of 4: 2 source shards for each target
    shard.
No device receives over 16777216 bytes or sends over 16777216, the least possible.
All devices together receive 67108864.

Ranges along dimensions 0, 2:

    device  before            after              receives
    0       [0, 32) x [0, 2)  [0, 16) x [0, 4)   [0, 16) x [2, 4) from 1
    1       [0, 32) x [2, 4)  [16, 32) x [0, 4)  [16, 32) x [0, 2) from 0
    2       [0, 32) x [4, 6)  [0, 16) x [4, 8)   [0, 16) x [6, 8) from 3
    3       [0, 32) x [6, 8)  [16, 32) x [4, 8)  [16, 32) x [4, 6) from 2

Form: direct; tiles go by DMA from shard to shard.
The wire carries 1.000 times the bytes of the tiles.
The busiest device receives 16,777,216 bytes, padding included.
HBM traffic is 1.00 times the least possible.
XLA's default shard layouts add copies of 2.00 times that least.
Where the result leaves the program XLA copies it once more.

Emitted by
    shardwright emit --mesh a=2,b=2 --shape 32x2048x8x128 --dtype bfloat16 --source '[{}, {}, {"a", "b"}, {}]' --target '[{"b"}, {}, {"a"}, {}]' --backends pallas_tpu,triton_gpu,jax_xla --name kv_cache_tp4_to_tp2
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.pallas_tpu` in the folder that contains FOLDER")
if __name__ == "__main__":  # one spare device, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=5")

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

SHAPE = (32, 2048, 8, 128)
DTYPE = "bfloat16"
SOURCE_MESH = TARGET_MESH = '<["a"=2, "b"=2]>'
SOURCE = '[{}, {}, {"a", "b"}, {}]'
TARGET = '[{"b"}, {}, {"a"}, {}]'
LOCAL_SOURCE_SHAPE = (32, 2048, 2, 128)
LOCAL_TARGET_SHAPE = (16, 2048, 4, 128)
SOURCE_IDS = TARGET_IDS = range(4)  # by mesh position
PLAN = "0b6fb016d4de1e7a"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("a", 2), ("b", 2))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 16777216  # received by the busiest device, padding included
COLLECTIVE_ID = 8880


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo2 = position * 2
    return 0, 32, 0, 2048, lo2, lo2 + 2, 0, 128


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = rem(position, 2) * 16
    lo2 = div(position, 2) * 4
    return lo0, lo0 + 16, 0, 2048, lo2, lo2 + 4, 0, 128


def receiver(sender, number):
    """The device that the tile of a number of a source shard goes to."""
    return div(sender, 2) * 2 + rem(rem(sender, 2) + number, 2)


def sender(receiver, number):
    """The device that the tile of a number of a target shard comes from."""
    return div(receiver, 2) * 2 + number


_SOURCE = Sharded(
    SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P(None, None, ("a", "b"), None)
)
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("b", None, "a", None))
PEERS = Permuted(_SOURCE, _TARGET, sender, receiver, 2)


TILE = (16, 2, 2048, 128)  # the extents of every tile, in kernel order
# The order of pushes: successive receivers are far apart, so that all links are busy.
ROUNDS = (0, 1)


def _start(x, y, sent, received):
    """Begin to push tiles of x, this device's source shard, to others' target shard, y.

    DMA semaphores: `sent` counts bytes leaving x, `received` bytes arriving in y.
    """
    me = lax.axis_index(("a", "b"))
    barrier = pltpu.get_barrier_semaphore()

    def tell(number):  # from here on a tile's sender may write to y
        peer = sender(me, number)
        pl.when(peer != me)(lambda: signal(barrier, peer))

    def hear(number):
        peer = receiver(me, number)
        pl.when(peer != me)(lambda: pl.semaphore_wait(barrier, 1))  # 1 from each receiver

    def push(number):
        peer = receiver(me, number)
        in_x = (rem(peer, 2) * 16, 0, 0, 0)
        in_y = (0, rem(me, 2) * 2, 0, 0)
        read, write = tile_at(x, in_x, TILE), tile_at(y, in_y, TILE)
        pl.when(peer != me)(lambda: remote_copy(read, write, sent, received, peer).start())
        pl.when(peer == me)(lambda: pltpu.make_async_copy(read, write, received).start())

    each(2, tell)
    each(2, hear)
    for number in ROUNDS:
        push(number)


def _wait(y, sent, received):
    """Wait until this device's tiles have left, and all of y, its target shard, has arrived."""
    me = lax.axis_index(("a", "b"))
    tile = tile_at(y, (0, 0, 0, 0), TILE)

    def leave(number):
        sends = receiver(me, number) != me
        pl.when(sends)(lambda: wait_for(tile, sent))  # 16,777,216 bytes of each tile pushed

    wait_for(y, received)  # 33,554,432 bytes: its tiles, pushed by others or kept here
    each(2, leave)


def _kernel(_order, x, y, sent, received):
    """Push tiles of x, and wait for the tiles of y; all peers follow from the device's position."""
    _start(x, y, sent, received)
    _wait(y, sent, received)


_PROGRAM = Direct(_kernel, 2, PEERS, (0, 2, 1, 3), collective_id=COLLECTIVE_ID, bits="interpreted")
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
