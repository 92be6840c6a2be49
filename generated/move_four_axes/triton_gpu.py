"""Reshards int32[4, 4, 4] over 16 devices: [{"w", "z"}, {}, {"x", "y"}] -> [{"x"}, {"y", "z"}, {}].

Source: [{"w", "z"}, {}, {"x", "y"}] on <["x"=2, "y"=2, "z"=2, "w"=2]>, shards of 1 x 4 x 1.
    d1(x, y, z, w)[k0, k1, k2] -> t[w * 2 + k0 + z, k1, x * 2 + k2 + y]
Target: [{"x"}, {"y", "z"}, {}] on <["x"=2, "y"=2, "z"=2, "w"=2]>, shards of 2 x 1 x 4.
    d2(x, y, z, w)[k0, k1, k2] -> t[x * 2 + k0, y * 2 + k1 + z, k2]

Along dimension 0, source shards of 1 meet target shards of 2: 2 source shards for each target
    shard.
Along dimension 1, source shards of 4 meet target shards of 1: one source shard for each target
    shard.
Along dimension 2, source shards of 1 meet target shards of 4: 4 source shards for each target
    shard.
Each tile has one holder, which sends it.
No device receives over 32 bytes or sends over 32, the least possible.
All devices together receive 480.

A device sends the intersection of its range before and the receiver's after.

    device  before                    after                     receives
    0       [0, 1) x [0, 4) x [0, 1)  [0, 2) x [0, 1) x [0, 4)  from 2, 4, 6, 8, 10, 12, 14
    1       [2, 3) x [0, 4) x [0, 1)  [0, 2) x [0, 1) x [0, 4)  from 0, 2, 4, 6, 8, 10, 12, 14
    2       [1, 2) x [0, 4) x [0, 1)  [0, 2) x [1, 2) x [0, 4)  from 0, 4, 6, 8, 10, 12, 14
    3       [3, 4) x [0, 4) x [0, 1)  [0, 2) x [1, 2) x [0, 4)  from 0, 2, 4, 6, 8, 10, 12, 14
    4       [0, 1) x [0, 4) x [1, 2)  [0, 2) x [2, 3) x [0, 4)  from 0, 2, 6, 8, 10, 12, 14
    5       [2, 3) x [0, 4) x [1, 2)  [0, 2) x [2, 3) x [0, 4)  from 0, 2, 4, 6, 8, 10, 12, 14
    6       [1, 2) x [0, 4) x [1, 2)  [0, 2) x [3, 4) x [0, 4)  from 0, 2, 4, 8, 10, 12, 14
    7       [3, 4) x [0, 4) x [1, 2)  [0, 2) x [3, 4) x [0, 4)  from 0, 2, 4, 6, 8, 10, 12, 14
    8       [0, 1) x [0, 4) x [2, 3)  [2, 4) x [0, 1) x [0, 4)  from 1, 3, 5, 7, 9, 11, 13, 15
    9       [2, 3) x [0, 4) x [2, 3)  [2, 4) x [0, 1) x [0, 4)  from 1, 3, 5, 7, 11, 13, 15
    10      [1, 2) x [0, 4) x [2, 3)  [2, 4) x [1, 2) x [0, 4)  from 1, 3, 5, 7, 9, 11, 13, 15
    11      [3, 4) x [0, 4) x [2, 3)  [2, 4) x [1, 2) x [0, 4)  from 1, 3, 5, 7, 9, 13, 15
    12      [0, 1) x [0, 4) x [3, 4)  [2, 4) x [2, 3) x [0, 4)  from 1, 3, 5, 7, 9, 11, 13, 15
    13      [2, 3) x [0, 4) x [3, 4)  [2, 4) x [2, 3) x [0, 4)  from 1, 3, 5, 7, 9, 11, 15
    14      [1, 2) x [0, 4) x [3, 4)  [2, 4) x [3, 4) x [0, 4)  from 1, 3, 5, 7, 9, 11, 13, 15
    15      [3, 4) x [0, 4) x [3, 4)  [2, 4) x [3, 4) x [0, 4)  from 1, 3, 5, 7, 9, 11, 13

Emitted by
    shardwright emit --mesh x=2,y=2,z=2,w=2 --shape 4x4x4 --dtype int32 --source '[{"w", "z"}, {}, {"x", "y"}]' --target '[{"x"}, {"y", "z"}, {}]' --name move_four_axes
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

SHAPE = (4, 4, 4)
DTYPE = "int32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=2, "z"=2, "w"=2]>'
SOURCE = '[{"w", "z"}, {}, {"x", "y"}]'
TARGET = '[{"x"}, {"y", "z"}, {}]'
LOCAL_SOURCE_SHAPE = (1, 4, 1)
LOCAL_TARGET_SHAPE = (2, 1, 4)
SOURCE_IDS = TARGET_IDS = range(16)  # by mesh position
PLAN = "a2e1c87034338e6c"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position % 2 * 2 + position // 2 % 2
    lo2 = position // 4
    return lo0, lo0 + 1, 0, 4, lo2, lo2 + 1


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position // 8 * 2
    lo1 = position // 2 % 4
    return lo0, lo0 + 2, lo1, lo1 + 1, 0, 4


def senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    return [
        a2 * 4 + a0 % 2 * 2 + a0 // 2
        for a0 in range(receiver // 8 * 2, receiver // 8 * 2 + 2)
        for a2 in range(4)
    ]


def receivers(sender):
    """Return the positions that the parts of a source shard go to."""
    return [sender % 2 * 8 + b1 * 2 + replica for b1 in range(4) for replica in range(2)]


@triton.jit(do_not_specialize=["receiver"])
def pull_kernel(
    peers,  # int64 [source positions]: the address of every source shard
    out,  # the target shard, viewed in the units of BLOCK
    receiver,  # position of this device in the target mesh
    BLOCK: tl.constexpr,  # shape of the block of one loop iteration: see `Block`
):
    """Copy blocks of tiles, each from its source shard. Offsets are in elements."""
    for place in range(tl.program_id(0), BLOCK.number, tl.num_programs(0)):
        number, block = place % 8, place // 8
        # A target shard of 2 meets 2 source shards of 1.
        # Each device starts with a different one and ends with its own.
        to0 = receiver // 8 * 2
        a0 = (number // 4 + receiver // 2 % 2 + 1) % 2 + to0
        # A target shard of 1 meets one source shard of 4.
        to1 = receiver // 2 % 4
        # A target shard of 4 meets 4 source shards of 1.
        # Each device starts with a different one and ends with its own.
        a2 = (receiver // 4 + number % 4 + 1) % 4
        sender = a2 * 4 + a0 % 2 * 2 + a0 // 2
        copy_rows(
            shard_at(peers, sender, out, BLOCK),
            out,
            read=to1,
            write=(a0 - to0) * 4 + a2,
            rows=1,
            columns=1,
            read_row=1,
            write_row=4,
            block=tl.cast(block, tl.int32),
            BLOCK=BLOCK,
        )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(number=8, width=1, lanes=1, rows=1, columns=1, largest=(1, 1, 1), together=BOTH)
_HOST = Reshard(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers, then moves elements
