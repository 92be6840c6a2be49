"""Reshards float32[1024, 512] over 8 devices: [{"x", "y"}, {}] -> [{"y", "x"}, {}].

Source: [{"x", "y"}, {}] on <["x"=2, "y"=4]>, shards of 128 x 512.
    d1(x, y)[k0, k1] -> t[x * 512 + y * 128 + k0, k1]
Target: [{"y", "x"}, {}] on <["x"=2, "y"=4]>, shards of 128 x 512.
    d2(x, y)[k0, k1] -> t[y * 256 + x * 128 + k0, k1]

No device receives over 262144 bytes or sends over 262144, the least possible.
All devices together receive 1572864.

A permutation: every shard goes whole to one device.

    device          0  1  2  3  4  5  6  7
    sends to        0  4  1  5  2  6  3  7
    receives from   0  2  4  6  1  3  5  7

Form: direct; tiles go by DMA from shard to shard.
The wire carries 1.000 times the bytes of the tiles.
The busiest device receives 262,144 bytes, padding included.
HBM traffic is 1.00 times the least possible.
Where the result leaves the program XLA copies it once more.

Emitted by
    shardwright emit --mesh x=2,y=4 --shape 1024x512 --dtype float32 --source '[{"x", "y"}, {}]' --target '[{"y", "x"}, {}]' --name axis_order_swap
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

SHAPE = (1024, 512)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=4]>'
SOURCE = '[{"x", "y"}, {}]'
TARGET = '[{"y", "x"}, {}]'
LOCAL_SOURCE_SHAPE = LOCAL_TARGET_SHAPE = (128, 512)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "60cf65747ae487a5"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("x", 2), ("y", 4))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 262144  # received by the busiest device, padding included
COLLECTIVE_ID = 7500


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position * 128
    return lo0, lo0 + 128, 0, 512


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = rem(position, 4) * 256 + div(position, 4) * 128
    return lo0, lo0 + 128, 0, 512


def receiver(sender, number):
    """The device that the tile of a number of a source shard goes to."""
    return rem(sender, 2) * 4 + div(sender, 2)


def sender(receiver, number):
    """The device that the tile of a number of a target shard comes from."""
    return rem(receiver, 4) * 2 + div(receiver, 4)


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P(("x", "y"), None))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P(("y", "x"), None))
PEERS = Permuted(_SOURCE, _TARGET, sender, receiver, 1)


TILE = (128, 512)  # the extents of every tile, in kernel order
# The order of pushes: successive receivers are far apart, so that all links are busy.
ROUNDS = (0,)


def _start(x, y, sent, received):
    """Begin to push tiles of x, this device's source shard, to others' target shard, y.

    DMA semaphores: `sent` counts bytes leaving x, `received` bytes arriving in y.
    """
    me = lax.axis_index(("x", "y"))
    barrier = pltpu.get_barrier_semaphore()

    def tell(number):  # from here on a tile's sender may write to y
        peer = sender(me, number)
        pl.when(peer != me)(lambda: signal(barrier, peer))

    def hear(number):
        peer = receiver(me, number)
        pl.when(peer != me)(lambda: pl.semaphore_wait(barrier, 1))  # 1 from each receiver

    def push(number):
        peer = receiver(me, number)
        in_x = (0, 0)
        in_y = (0, 0)
        read, write = tile_at(x, in_x, TILE), tile_at(y, in_y, TILE)
        pl.when(peer != me)(lambda: remote_copy(read, write, sent, received, peer).start())
        pl.when(peer == me)(lambda: pltpu.make_async_copy(read, write, received).start())

    each(1, tell)
    each(1, hear)
    for number in ROUNDS:
        push(number)


def _wait(y, sent, received):
    """Wait until this device's tiles have left, and all of y, its target shard, has arrived."""
    me = lax.axis_index(("x", "y"))
    tile = tile_at(y, (0, 0), TILE)

    def leave(number):
        sends = receiver(me, number) != me
        pl.when(sends)(lambda: wait_for(tile, sent))  # 262,144 bytes of each tile pushed

    wait_for(y, received)  # 262,144 bytes: its tiles, pushed by others or kept here
    each(1, leave)


def _kernel(_order, x, y, sent, received):
    """Push tiles of x, and wait for the tiles of y; all peers follow from the device's position."""
    _start(x, y, sent, received)
    _wait(y, sent, received)


_PROGRAM = Direct(_kernel, 2, PEERS, (0, 1), collective_id=COLLECTIVE_ID)
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
