"""Reshards float32[6, 6] over 12 devices: [{"x"}, {"y"}] -> [{"y"}, {"x"}].

Source: [{"x"}, {"y"}] on <["x"=2, "y"=6]>, shards of 3 x 1.
    d1(x, y)[k0, k1] -> t[x * 3 + k0, k1 + y]
Target: [{"y"}, {"x"}] on <["x"=2, "y"=6]>, shards of 1 x 3.
    d2(x, y)[k0, k1] -> t[k0 + y, x * 3 + k1]

Along dimension 0, source shards of 3 meet target shards of 1: one source shard for each target
    shard.
Along dimension 1, source shards of 1 meet target shards of 3: 3 source shards for each target
    shard.
Each tile has one holder, which sends it.
No device receives over 12 bytes or sends over 12, the least possible.
All devices together receive 120.

    device  before           after            receives
    0       [0, 3) x [0, 1)  [0, 1) x [0, 3)  [0, 1) x [1, 2) from 1, [0, 1) x [2, 3) from 2
    1       [0, 3) x [1, 2)  [1, 2) x [0, 3)  [1, 2) x [0, 1) from 0, [1, 2) x [2, 3) from 2
    2       [0, 3) x [2, 3)  [2, 3) x [0, 3)  [2, 3) x [0, 1) from 0, [2, 3) x [1, 2) from 1
    3       [0, 3) x [3, 4)  [3, 4) x [0, 3)  [3, 4) x [0, 1) from 6, [3, 4) x [1, 2) from 7,
                                              [3, 4) x [2, 3) from 8
    4       [0, 3) x [4, 5)  [4, 5) x [0, 3)  [4, 5) x [0, 1) from 6, [4, 5) x [1, 2) from 7,
                                              [4, 5) x [2, 3) from 8
    5       [0, 3) x [5, 6)  [5, 6) x [0, 3)  [5, 6) x [0, 1) from 6, [5, 6) x [1, 2) from 7,
                                              [5, 6) x [2, 3) from 8
    6       [3, 6) x [0, 1)  [0, 1) x [3, 6)  [0, 1) x [3, 4) from 3, [0, 1) x [4, 5) from 4,
                                              [0, 1) x [5, 6) from 5
    7       [3, 6) x [1, 2)  [1, 2) x [3, 6)  [1, 2) x [3, 4) from 3, [1, 2) x [4, 5) from 4,
                                              [1, 2) x [5, 6) from 5
    8       [3, 6) x [2, 3)  [2, 3) x [3, 6)  [2, 3) x [3, 4) from 3, [2, 3) x [4, 5) from 4,
                                              [2, 3) x [5, 6) from 5
    9       [3, 6) x [3, 4)  [3, 4) x [3, 6)  [3, 4) x [4, 5) from 10, [3, 4) x [5, 6) from 11
    10      [3, 6) x [4, 5)  [4, 5) x [3, 6)  [4, 5) x [3, 4) from 9, [4, 5) x [5, 6) from 11
    11      [3, 6) x [5, 6)  [5, 6) x [3, 6)  [5, 6) x [3, 4) from 9, [5, 6) x [4, 5) from 10

Emitted by
    shardwright emit --mesh x=2,y=6 --shape 6x6 --dtype float32 --source '[{"x"}, {"y"}]' --target '[{"y"}, {"x"}]' --name transpose_2x6
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

SHAPE = (6, 6)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=6]>'
SOURCE = '[{"x"}, {"y"}]'
TARGET = '[{"y"}, {"x"}]'
LOCAL_SOURCE_SHAPE = (3, 1)
LOCAL_TARGET_SHAPE = (1, 3)
SOURCE_IDS = TARGET_IDS = range(12)  # by mesh position
PLAN = "91fb2ad9da0f163c"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position // 6 * 3
    lo1 = position % 6
    return lo0, lo0 + 3, lo1, lo1 + 1


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position % 6
    lo1 = position // 6 * 3
    return lo0, lo0 + 1, lo1, lo1 + 3


def senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    return [receiver // 3 % 2 * 6 + a1 for a1 in range(receiver // 6 * 3, receiver // 6 * 3 + 3)]


def receivers(sender):
    """Return the positions that the parts of a source shard go to."""
    return [sender // 3 % 2 * 6 + b0 for b0 in range(sender // 6 * 3, sender // 6 * 3 + 3)]


@triton.jit(do_not_specialize=["receiver"])
def pull_kernel(
    peers,  # int64 [source positions]: the address of every source shard
    out,  # the target shard, viewed in the units of BLOCK
    receiver,  # position of this device in the target mesh
    BLOCK: tl.constexpr,  # shape of the block of one loop iteration: see `Block`
):
    """Copy blocks of tiles, each from its source shard. Offsets are in elements."""
    for place in range(tl.program_id(0), BLOCK.number, tl.num_programs(0)):
        number, block = place % 3, place // 3
        # A target shard of 1 meets one source shard of 3.
        to0 = receiver % 6
        a0 = to0 // 3
        from0 = a0 * 3
        # A target shard of 3 meets 3 source shards of 1.
        # Each device starts with a different one and ends with its own.
        to1 = receiver // 6 * 3
        a1 = (receiver % 6 + number + 1) % 3 + to1
        sender = a0 * 6 + a1
        copy_rows(
            shard_at(peers, sender, out, BLOCK),
            out,
            read=to0 - from0,
            write=a1 - to1,
            rows=1,
            columns=1,
            read_row=1,
            write_row=3,
            block=tl.cast(block, tl.int32),
            BLOCK=BLOCK,
        )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(number=3, width=1, lanes=1, rows=1, columns=1, largest=(1, 1), together=BOTH)
_HOST = Reshard(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers, then moves elements
