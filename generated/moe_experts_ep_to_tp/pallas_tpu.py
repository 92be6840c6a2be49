"""Reshards bfloat16[256, 2048, 1792] over 8 devices: [{"ep", "tp"}, {}, {}] -> [{"ep"}, {},
    {"tp"}].

Source: [{"ep", "tp"}, {}, {}] on <["ep"=4, "tp"=2]>, shards of 32 x 2048 x 1792.
    d1(ep, tp)[k0, k1, k2] -> t[ep * 64 + tp * 32 + k0, k1, k2]
Target: [{"ep"}, {}, {"tp"}] on <["ep"=4, "tp"=2]>, shards of 64 x 2048 x 896.
    d2(ep, tp)[k0, k1, k2] -> t[ep * 64 + k0, k1, tp * 896 + k2]

Along dimension 0, source shards of 32 meet target shards of 64: 2 source shards for each target
    shard.
Along dimension 2, source shards of 1792 meet target shards of 896: 1 source shard for each target
    shard.
No device receives over 117440512 bytes or sends over 117440512, the least possible.
All devices together receive 939524096.

Ranges along dimensions 0, 2:

    device  before                  after                     receives
    0       [0, 32) x [0, 1792)     [0, 64) x [0, 896)        [32, 64) x [0, 896) from 1
    1       [32, 64) x [0, 1792)    [0, 64) x [896, 1792)     [0, 32) x [896, 1792) from 0
    2       [64, 96) x [0, 1792)    [64, 128) x [0, 896)      [96, 128) x [0, 896) from 3
    3       [96, 128) x [0, 1792)   [64, 128) x [896, 1792)   [64, 96) x [896, 1792) from 2
    4       [128, 160) x [0, 1792)  [128, 192) x [0, 896)     [160, 192) x [0, 896) from 5
    5       [160, 192) x [0, 1792)  [128, 192) x [896, 1792)  [128, 160) x [896, 1792) from 4
    6       [192, 224) x [0, 1792)  [192, 256) x [0, 896)     [224, 256) x [0, 896) from 7
    7       [224, 256) x [0, 1792)  [192, 256) x [896, 1792)  [192, 224) x [896, 1792) from 6

Form: direct; tiles go by DMA from shard to shard.
The wire carries 1.000 times the bytes of the tiles.
The busiest device receives 117,440,512 bytes, padding included.
HBM traffic is 1.00 times the least possible.
Where the result leaves the program XLA copies it once more.

Emitted by
    shardwright emit --mesh ep=4,tp=2 --shape 256x2048x1792 --dtype bfloat16 --source '[{"ep", "tp"}, {}, {}]' --target '[{"ep"}, {}, {"tp"}]' --backends pallas_tpu,triton_gpu,jax_xla --name moe_experts_ep_to_tp
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

SHAPE = (256, 2048, 1792)
DTYPE = "bfloat16"
SOURCE_MESH = TARGET_MESH = '<["ep"=4, "tp"=2]>'
SOURCE = '[{"ep", "tp"}, {}, {}]'
TARGET = '[{"ep"}, {}, {"tp"}]'
LOCAL_SOURCE_SHAPE = (32, 2048, 1792)
LOCAL_TARGET_SHAPE = (64, 2048, 896)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "237b58d872a475da"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("ep", 4), ("tp", 2))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 117440512  # received by the busiest device, padding included
COLLECTIVE_ID = 27940


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position * 32
    return lo0, lo0 + 32, 0, 2048, 0, 1792


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = div(position, 2) * 64
    lo2 = rem(position, 2) * 896
    return lo0, lo0 + 64, 0, 2048, lo2, lo2 + 896


def receiver(sender, number):
    """The device that the tile of a number of a source shard goes to."""
    return div(sender, 2) * 2 + rem(rem(sender, 2) + number, 2)


def sender(receiver, number):
    """The device that the tile of a number of a target shard comes from."""
    return div(receiver, 2) * 2 + number


_SOURCE = Sharded(
    SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P(("ep", "tp"), None, None)
)
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("ep", None, "tp"))
PEERS = Permuted(_SOURCE, _TARGET, sender, receiver, 2)


TILE = (32, 2048, 896)  # the extents of every tile, in kernel order
# The order of pushes: successive receivers are far apart, so that all links are busy.
ROUNDS = (0, 1)


def _start(x, y, sent, received):
    """Begin to push tiles of x, this device's source shard, to others' target shard, y.

    DMA semaphores: `sent` counts bytes leaving x, `received` bytes arriving in y.
    """
    me = lax.axis_index(("ep", "tp"))
    barrier = pltpu.get_barrier_semaphore()

    def tell(number):  # from here on a tile's sender may write to y
        peer = sender(me, number)
        pl.when(peer != me)(lambda: signal(barrier, peer))

    def hear(number):
        peer = receiver(me, number)
        pl.when(peer != me)(lambda: pl.semaphore_wait(barrier, 1))  # 1 from each receiver

    def push(number):
        peer = receiver(me, number)
        in_x = (0, 0, rem(peer, 2) * 896)
        in_y = (rem(me, 2) * 32, 0, 0)
        read, write = tile_at(x, in_x, TILE), tile_at(y, in_y, TILE)
        pl.when(peer != me)(lambda: remote_copy(read, write, sent, received, peer).start())
        pl.when(peer == me)(lambda: pltpu.make_async_copy(read, write, received).start())

    each(2, tell)
    each(2, hear)
    for number in ROUNDS:
        push(number)


def _wait(y, sent, received):
    """Wait until this device's tiles have left, and all of y, its target shard, has arrived."""
    me = lax.axis_index(("ep", "tp"))
    tile = tile_at(y, (0, 0, 0), TILE)

    def leave(number):
        sends = receiver(me, number) != me
        pl.when(sends)(lambda: wait_for(tile, sent))  # 117,440,512 bytes of each tile pushed

    wait_for(y, received)  # 234,881,024 bytes: its tiles, pushed by others or kept here
    each(2, leave)


def _kernel(_order, x, y, sent, received):
    """Push tiles of x, and wait for the tiles of y; all peers follow from the device's position."""
    _start(x, y, sent, received)
    _wait(y, sent, received)


_PROGRAM = Direct(_kernel, 2, PEERS, (0, 1, 2), collective_id=COLLECTIVE_ID, bits="interpreted")
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
