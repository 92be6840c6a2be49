"""Reshards bfloat16[8, 6] over 4 devices: [{"x"}, {"y"}] -> [{"x"}, {"y"}].

Source: [{"x"}, {"y"}] on <["x"=2, "y"=2]>, shards of 4 x 3.
    d1(x, y)[k0, k1] -> t[x * 4 + k0, y * 3 + k1]
Target: [{"x"}, {"y"}] on <["x"=2, "y"=2]> (device ids below), shards of 4 x 3.
    d2(x, y)[k0, k1] -> t[x * 4 + k0, y * 3 + k1]

Along dimension 0, source shards of 4 meet target shards of 4: one source shard for each target
    shard.
Along dimension 1, source shards of 3 meet target shards of 3: one source shard for each target
    shard.
Each tile has one holder, which sends it.
No device receives over 24 bytes or sends over 24, the least possible.
All devices together receive 96.

A permutation: every shard goes whole to one device.

    device          0  1  2  3
    sends to        3  2  1  0
    receives from   3  2  1  0

Emitted by
    shardwright emit --mesh x=2,y=2 --shape 8x6 --dtype bfloat16 --source '[{"x"}, {"y"}]' --target '[{"x"}, {"y"}]' --target-mesh '<["x"=2, "y"=2], device_ids=[3, 2, 1, 0]>' --name reversed_devices
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.triton_gpu` in the folder that contains FOLDER")
if __name__ == "__main__":
    os.environ.setdefault("TRITON_INTERPRET", "1")

import triton
import triton.language as tl

from .._support import require
from .._support.exchanges import Exchange
from .._support.sides import Side
from .._support.torch_gpu import Reshard
from .._support.triton_rows import BOTH, Tiles, copy_rows, shard_at

require("triton_gpu", "c4a32583165833e8", __name__)
__all__ = ["reshard", "reshard_local", "source_shape", "target_shape"]

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


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position // 2 * 4
    lo1 = position % 2 * 3
    return lo0, lo0 + 4, lo1, lo1 + 3


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position // 2 * 4
    lo1 = position % 2 * 3
    return lo0, lo0 + 4, lo1, lo1 + 3


def senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    return [receiver]


def receivers(sender):
    """Return the positions that the parts of a source shard go to."""
    return [sender]


@triton.jit(do_not_specialize=["receiver"])
def pull_kernel(
    peers,  # int64 [source positions]: the address of every source shard
    out,  # the target shard, viewed in the units of BLOCK
    receiver,  # position of this device in the target mesh
    BLOCK: tl.constexpr,  # shape of the block of one loop iteration: see `Block`
):
    """Copy blocks of tiles, each from its source shard. Offsets are in elements."""
    for place in range(tl.program_id(0), BLOCK.number, tl.num_programs(0)):
        sender = receiver
        copy_rows(
            shard_at(peers, sender, out, BLOCK),
            out,
            read=0,
            write=0,
            rows=1,
            columns=12,
            read_row=0,
            write_row=0,
            block=tl.cast(place, tl.int32),
            BLOCK=BLOCK,
        )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(number=1, width=4, lanes=1, rows=1, columns=4, largest=(1, 12), together=BOTH)
_HOST = Reshard(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers, then moves elements
