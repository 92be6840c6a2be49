"""Reshards bfloat16[4096, 64, 128] over 8 devices: [{}, {"sp"}, {}] -> [{"sp"}, {}, {}].

Source: [{}, {"sp"}, {}] on <["sp"=8]>, shards of 4096 x 8 x 128.
    d1(sp)[k0, k1, k2] -> t[k0, sp * 8 + k1, k2]
Target: [{"sp"}, {}, {}] on <["sp"=8]>, shards of 512 x 64 x 128.
    d2(sp)[k0, k1, k2] -> t[sp * 512 + k0, k1, k2]

Along dimension 0, source shards of 4096 meet target shards of 512: 1 source shard for each target
    shard.
Along dimension 1, source shards of 8 meet target shards of 64: 8 source shards for each target
    shard.
No device receives over 7340032 bytes or sends over 7340032, the least possible.
All devices together receive 58720256.

Ranges along dimensions 0, 1:
A device sends the intersection of its range before and the receiver's after.

    device  before                after                   receives
    0       [0, 4096) x [0, 8)    [0, 512) x [0, 64)      from 1, 2, 3, 4, 5, 6, 7
    1       [0, 4096) x [8, 16)   [512, 1024) x [0, 64)   from 0, 2, 3, 4, 5, 6, 7
    2       [0, 4096) x [16, 24)  [1024, 1536) x [0, 64)  from 0, 1, 3, 4, 5, 6, 7
    3       [0, 4096) x [24, 32)  [1536, 2048) x [0, 64)  from 0, 1, 2, 4, 5, 6, 7
    4       [0, 4096) x [32, 40)  [2048, 2560) x [0, 64)  from 0, 1, 2, 3, 5, 6, 7
    5       [0, 4096) x [40, 48)  [2560, 3072) x [0, 64)  from 0, 1, 2, 3, 4, 6, 7
    6       [0, 4096) x [48, 56)  [3072, 3584) x [0, 64)  from 0, 1, 2, 3, 4, 5, 7
    7       [0, 4096) x [56, 64)  [3584, 4096) x [0, 64)  from 0, 1, 2, 3, 4, 5, 6

Form: direct; tiles go by DMA from shard to shard.
The wire carries 1.000 times the bytes of the tiles.
The busiest device receives 7,340,032 bytes, padding included.
HBM traffic is 1.00 times the least possible.
Where the result leaves the program XLA copies it once more.

Emitted by
    shardwright emit --mesh sp=8 --shape 4096x64x128 --dtype bfloat16 --source '[{"sp"}, {}, {}]' --target '[{}, {"sp"}, {}]' --backends pallas_tpu,triton_gpu,jax_xla --gradient --name attention_seq_to_heads  # pallas_tpu_backward.py, the backward
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
from .._support.jax_operation import Operation
from .._support.pallas_direct import Direct, tile_at
from .._support.pallas_peers import each, rem, remote_copy, signal, wait_for
from .._support.pallas_permuted import Permuted

require("pallas_tpu", "24fecbfefb230f2f", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (4096, 64, 128)
DTYPE = "bfloat16"
SOURCE_MESH = TARGET_MESH = '<["sp"=8]>'
SOURCE = '[{}, {"sp"}, {}]'
TARGET = '[{"sp"}, {}, {}]'
LOCAL_SOURCE_SHAPE = (4096, 8, 128)
LOCAL_TARGET_SHAPE = (512, 64, 128)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "433f61bb5df6aeab"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("sp", 8),)
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 7340032  # received by the busiest device, padding included
COLLECTIVE_ID = 15869


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo1 = position * 8
    return 0, 4096, lo1, lo1 + 8, 0, 128


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position * 512
    return lo0, lo0 + 512, 0, 64, 0, 128


def receiver(sender, number):
    """The device that the tile of a number of a source shard goes to."""
    return rem(number + sender, 8)


def sender(receiver, number):
    """The device that the tile of a number of a target shard comes from."""
    return number


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P(None, "sp", None))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("sp", None, None))
PEERS = Permuted(_SOURCE, _TARGET, sender, receiver, 8)


TILE = (512, 8, 128)  # the extents of every tile, in kernel order
# The order of pushes: successive receivers are far apart, so that all links are busy.
ROUNDS = (0, 3, 6, 1, 4, 7, 2, 5)


def _start(x, y, sent, received):
    """Begin to push tiles of x, this device's source shard, to others' target shard, y.

    DMA semaphores: `sent` counts bytes leaving x, `received` bytes arriving in y.
    """
    me = lax.axis_index("sp")
    barrier = pltpu.get_barrier_semaphore()

    def tell(number):  # from here on a tile's sender may write to y
        peer = sender(me, number)
        pl.when(peer != me)(lambda: signal(barrier, peer))

    def hear(number):
        peer = receiver(me, number)
        pl.when(peer != me)(lambda: pl.semaphore_wait(barrier, 1))  # 1 from each receiver

    def push(number):
        peer = receiver(me, number)
        in_x = (peer * 512, 0, 0)
        in_y = (0, me * 8, 0)
        read, write = tile_at(x, in_x, TILE), tile_at(y, in_y, TILE)
        pl.when(peer != me)(lambda: remote_copy(read, write, sent, received, peer).start())
        pl.when(peer == me)(lambda: pltpu.make_async_copy(read, write, received).start())

    each(8, tell)
    each(8, hear)
    for number in ROUNDS:
        push(number)


def _wait(y, sent, received):
    """Wait until this device's tiles have left, and all of y, its target shard, has arrived."""
    me = lax.axis_index("sp")
    tile = tile_at(y, (0, 0, 0), TILE)

    def leave(number):
        sends = receiver(me, number) != me
        pl.when(sends)(lambda: wait_for(tile, sent))  # 1,048,576 bytes of each tile pushed

    wait_for(y, received)  # 8,388,608 bytes: its tiles, pushed by others or kept here
    each(8, leave)


def _kernel(_order, x, y, sent, received):
    """Push tiles of x, and wait for the tiles of y; all peers follow from the device's position."""
    _start(x, y, sent, received)
    _wait(y, sent, received)


_PROGRAM = Direct(_kernel, 2, PEERS, (0, 1, 2), collective_id=COLLECTIVE_ID, bits="interpreted")
_HOST = OneOrder(
    __name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM, operation=Operation(__name__, "pallas_tpu")
)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
