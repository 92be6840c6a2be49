"""Reshards float32[27, 14] over 10 devices: [{"x"}, {"y"}] -> [{"y"}, {"x"}].

Source: [{"x"}, {"y"}] on <["x"=5, "y"=2]>, shards of 6 x 7.
    d1(x, y)[k0, k1] -> t[x * 6 + k0, y * 7 + k1]
    The last shards along dimension 0 are short or empty, and are stored without padding: device 8
        has 3 x 7.
Target: [{"y"}, {"x"}] on <["x"=5, "y"=2]>, shards of 14 x 3.
    d2(x, y)[k0, k1] -> t[y * 14 + k0, x * 3 + k1]
    The last shards along dimensions 0 and 1 are short or empty, and are stored without padding:
        device 9 has 13 x 2.

Along dimension 0, source shards of 6 meet target shards of 14: 3 source shards for each target
    shard.
Along dimension 1, source shards of 7 meet target shards of 3: up to 2 source shards for each target
    shard.
Each tile has one holder, which sends it.
No device receives over 168 bytes or sends over 168, the least possible.
All devices together receive 1232.

    device  before              after
    0       [0, 6) x [0, 7)     [0, 14) x [0, 3)
            receives [6, 12) x [0, 3) from 2, [12, 14) x [0, 3) from 4
    1       [0, 6) x [7, 14)    [14, 27) x [0, 3)
            receives [14, 18) x [0, 3) from 4, [18, 24) x [0, 3) from 6, [24, 27) x [0, 3) from 8
    2       [6, 12) x [0, 7)    [0, 14) x [3, 6)
            receives [0, 6) x [3, 6) from 0, [12, 14) x [3, 6) from 4
    3       [6, 12) x [7, 14)   [14, 27) x [3, 6)
            receives [14, 18) x [3, 6) from 4, [18, 24) x [3, 6) from 6, [24, 27) x [3, 6) from 8
    4       [12, 18) x [0, 7)   [0, 14) x [6, 9)
            receives [0, 6) x [6, 7) from 0, [0, 6) x [7, 9) from 1, [6, 12) x [6, 7) from 2,
            [6, 12) x [7, 9) from 3, [12, 14) x [7, 9) from 5
    5       [12, 18) x [7, 14)  [14, 27) x [6, 9)
            receives [14, 18) x [6, 7) from 4, [18, 24) x [6, 7) from 6, [18, 24) x [7, 9) from 7,
            [24, 27) x [6, 7) from 8, [24, 27) x [7, 9) from 9
    6       [18, 24) x [0, 7)   [0, 14) x [9, 12)
            receives [0, 6) x [9, 12) from 1, [6, 12) x [9, 12) from 3, [12, 14) x [9, 12) from 5
    7       [18, 24) x [7, 14)  [14, 27) x [9, 12)
            receives [14, 18) x [9, 12) from 5, [24, 27) x [9, 12) from 9
    8       [24, 27) x [0, 7)   [0, 14) x [12, 14)
            receives [0, 6) x [12, 14) from 1, [6, 12) x [12, 14) from 3, [12, 14) x [12, 14) from 5
    9       [24, 27) x [7, 14)  [14, 27) x [12, 14)
            receives [14, 18) x [12, 14) from 5, [18, 24) x [12, 14) from 7

Emitted by
    shardwright emit --mesh x=5,y=2 --shape 27x14 --dtype float32 --source '[{"x"}, {"y"}]' --target '[{"y"}, {"x"}]' --name transpose_5x2_uneven
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
from .._support.triton_rows import Tiles, copy_rows, shard_at

require("triton_gpu", "c4a32583165833e8", __name__)
__all__ = ["reshard", "reshard_local", "source_shape", "target_shape"]

SHAPE = (27, 14)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=5, "y"=2]>'
SOURCE = '[{"x"}, {"y"}]'
TARGET = '[{"y"}, {"x"}]'
LOCAL_SOURCE_SHAPE = (6, 7)
LOCAL_TARGET_SHAPE = (14, 3)
SOURCE_IDS = TARGET_IDS = range(10)  # by mesh position
PLAN = "57f815ee237d075e"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position // 2 * 6
    lo1 = position % 2 * 7
    return lo0, min(lo0 + 6, 27), lo1, lo1 + 7


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position % 2 * 14
    lo1 = position // 2 * 3
    return lo0, min(lo0 + 14, 27), lo1, min(lo1 + 3, 14)


def senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    first0 = receiver % 2 * 7 // 3
    last0 = (min(receiver % 2 * 14 + 14, 27) - 1) // 6
    first1 = receiver // 2 * 3 // 7
    last1 = (min(receiver // 2 * 3 + 3, 14) - 1) // 7
    return [a0 * 2 + a1 for a0 in range(first0, last0 + 1) for a1 in range(first1, last1 + 1)]


def receivers(sender):
    """Return the positions that the parts of a source shard go to."""
    first0 = sender // 2 * 3 // 7
    last0 = (min(sender // 2 * 6 + 6, 27) - 1) // 14
    return [
        b1 * 2 + b0
        for b0 in range(first0, last0 + 1)
        for b1 in range(sender % 2 * 7 // 3, sender % 2 * 7 // 3 + 3)
    ]


@triton.jit(do_not_specialize=["receiver"])
def pull_kernel(
    peers,  # int64 [source positions]: the address of every source shard
    out,  # the target shard, viewed in the units of BLOCK
    receiver,  # position of this device in the target mesh
    BLOCK: tl.constexpr,  # shape of the block of one loop iteration: see `Block`
):
    """Copy blocks of tiles, each from its source shard. Offsets are in elements."""
    for place in range(tl.program_id(0), BLOCK.number, tl.num_programs(0)):
        number, block = place % 6, place // 6
        # A target shard of 14 meets 3 source shards of 6.
        # Each device starts with a different one.
        to0 = receiver % 2 * 14
        a0 = to0 // 6 + (number // 2 + receiver // 2) % 3
        from0 = a0 * 6
        low0 = max(from0, to0)
        width0 = min(from0 + 6, min(to0 + 14, 27)) - low0
        # A target shard of 3 meets up to 2 source shards of 7.
        # Each device starts with a different one.
        to1 = receiver // 2 * 3
        a1 = to1 // 7 + (number % 2 + receiver % 2) % 2
        from1 = a1 * 7
        low1 = max(from1, to1)
        high1 = min(from1 + 7, min(to1 + 3, 14))
        width1 = high1 - low1
        wanted1 = min(to1 + 3, 14) - to1
        sender = a0 * 2 + a1
        if low1 < high1:
            copy_rows(
                shard_at(peers, sender, out, BLOCK),
                out,
                read=(low0 - from0) * 7 + low1 - from1,
                write=(low0 - to0) * wanted1 + low1 - to1,
                rows=width0,
                columns=width1,
                read_row=7,
                write_row=wanted1,
                block=tl.cast(block, tl.int32),
                BLOCK=BLOCK,
            )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(number=6, width=1, lanes=1, rows=8, columns=4, largest=(6, 3))
_HOST = Reshard(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers, then moves elements
