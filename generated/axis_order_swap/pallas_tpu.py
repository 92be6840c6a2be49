"""Reshards float32[1024, 512] over 8 devices: [{"x", "y"}, {}] -> [{"y", "x"}, {}].

Source: [{"x", "y"}, {}] on <["x"=2, "y"=4]>, shards of 128 x 512.
    d1(x, y)[k0, k1] -> t[x * 512 + y * 128 + k0, k1]
Target: [{"y", "x"}, {}] on <["x"=2, "y"=4]>, shards of 128 x 512.
    d2(x, y)[k0, k1] -> t[y * 256 + x * 128 + k0, k1]

Bytes of the busiest device: 262144 in, 262144 out, the least possible; 1572864 in all.

A permutation: every shard goes whole to one device.

    device          0  1  2  3  4  5  6  7
    sends to        0  4  1  5  2  6  3  7
    receives from   0  2  4  6  1  3  5  7

Form: direct; tiles go by DMA from shard to shard.
On the wire 1.000 times the exact bytes, 262,144 into the busiest device.
HBM reads and writes 1.00 times the least possible.
Where the result leaves the program XLA copies it once more.

Made by
    shardwright emit --mesh x=2,y=4 --shape 1024x512 --dtype float32 --source '[{"x", "y"}, {}]' --target '[{"y", "x"}, {}]' --name axis_order_swap
"""

import os

if not __package__:
    raise ImportError("part of a package: above FOLDER, run `python -m FOLDER.NAME.pallas_tpu`")
if __name__ == "__main__":  # on one device more than there are, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=9")

from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

from .._support import require
from .._support.jax_meshes import Sharded
from .._support.pallas_peers import LOGICAL, div, rem
from .._support.pallas_program import Halves, Permuted, meet_one, wait_for
from .._support.pallas_started import StartedReshard

require("pallas_tpu", "acfa4c3cc82d4a7b", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["reshard_done", "reshard_start", "source_shape", "target_shape"]

SHAPE = (1024, 512)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=4]>'
SOURCE = '[{"x", "y"}, {}]'
TARGET = '[{"y", "x"}, {}]'
LOCAL_SOURCE_SHAPE = LOCAL_TARGET_SHAPE = (128, 512)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "60cf65747ae487a5"  # processes that exchange must have the same
SOURCE_AXES = TARGET_AXES = (("x", 2), ("y", 4))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 262144  # that arrive at the busiest device, padding included
COLLECTIVE_ID = 7500


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position * 128
    return lo0, lo0 + 128, 0, 512


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = rem(position, 4) * 256 + div(position, 4) * 128
    return lo0, lo0 + 128, 0, 512


def receiver_of(device):
    """The device whose target shard is this one's source shard."""
    return rem(device, 2) * 4 + div(device, 2)


def sender_to(device):
    """The device whose source shard is this one's target shard."""
    return rem(device, 4) * 2 + div(device, 4)


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P(("x", "y"), None))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P(("y", "x"), None))
PEERS = Permuted(_SOURCE, _TARGET, sender_to, receiver_of)


def _start(x, y, sent, received):
    """Begin to push x, this device's source shard, into y, another's target shard."""
    me = lax.axis_index(("x", "y"))

    @pl.when(receiver_of(me) == me)
    def keep():
        pltpu.make_async_copy(x, y, received).start()

    @pl.when(receiver_of(me) != me)
    def push():
        meet_one(sender_to(me))
        pltpu.make_async_remote_copy(
            x, y, sent, received, device_id=receiver_of(me), device_id_type=LOGICAL
        ).start()


def _wait(y, sent, received):
    """Wait until its source shard has left, and all of y, its target shard, has come."""
    me = lax.axis_index(("x", "y"))
    wait_for(y, received)
    pl.when(receiver_of(me) != me)(lambda: wait_for(y, sent))


_PROGRAM = Halves(_start, _wait, PEERS, (0, 1), collective_id=COLLECTIVE_ID)
_HOST = StartedReshard(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
reshard_start, reshard_done = _HOST.reshard_start, _HOST.reshard_done
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
