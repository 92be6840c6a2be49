"""Reshards float32[16, 23] over 12 devices: [{"x"}, {"y"}] -> [{"y"}, {"x"}].

Source: [{"x"}, {"y"}] on <["x"=3, "y"=4]>, shards of 6 x 6.
    d1(x, y)[k0, k1] -> t[x * 6 + k0, y * 6 + k1]
    The last shards along dimensions 0 and 1 are short or empty, and are stored without padding:
        device 11 has 4 x 5.
Target: [{"y"}, {"x"}] on <["x"=3, "y"=4]>, shards of 4 x 8.
    d2(x, y)[k0, k1] -> t[y * 4 + k0, x * 8 + k1]
    The last shards along dimension 1 are short or empty, and are stored without padding: device 8
        has 4 x 7.

Along dimension 0, source shards of 6 meet target shards of 4: up to 2 source shards for each target
    shard.
Along dimension 1, source shards of 6 meet target shards of 8: 2 source shards for each target
    shard.
Each tile has one holder, which sends it.
No device receives over 128 bytes or sends over 144, the least possible.
All devices together receive 1184.

    device  before               after                receives
    0       [0, 6) x [0, 6)      [0, 4) x [0, 8)      [0, 4) x [6, 8) from 1
    1       [0, 6) x [6, 12)     [4, 8) x [0, 8)      [4, 6) x [0, 6) from 0,
                                                      [6, 8) x [0, 6) from 4, [6, 8) x [6, 8) from 5
    2       [0, 6) x [12, 18)    [8, 12) x [0, 8)     [8, 12) x [0, 6) from 4,
                                                      [8, 12) x [6, 8) from 5
    3       [0, 6) x [18, 23)    [12, 16) x [0, 8)    [12, 16) x [0, 6) from 8,
                                                      [12, 16) x [6, 8) from 9
    4       [6, 12) x [0, 6)     [0, 4) x [8, 16)     [0, 4) x [8, 12) from 1,
                                                      [0, 4) x [12, 16) from 2
    5       [6, 12) x [6, 12)    [4, 8) x [8, 16)     [4, 6) x [8, 12) from 1,
                                                      [4, 6) x [12, 16) from 2,
                                                      [6, 8) x [12, 16) from 6
    6       [6, 12) x [12, 18)   [8, 12) x [8, 16)    [8, 12) x [8, 12) from 5
    7       [6, 12) x [18, 23)   [12, 16) x [8, 16)   [12, 16) x [8, 12) from 9,
                                                      [12, 16) x [12, 16) from 10
    8       [12, 16) x [0, 6)    [0, 4) x [16, 23)    [0, 4) x [16, 18) from 2,
                                                      [0, 4) x [18, 23) from 3
    9       [12, 16) x [6, 12)   [4, 8) x [16, 23)    [4, 6) x [16, 18) from 2,
                                                      [4, 6) x [18, 23) from 3,
                                                      [6, 8) x [16, 18) from 6,
                                                      [6, 8) x [18, 23) from 7
    10      [12, 16) x [12, 18)  [8, 12) x [16, 23)   [8, 12) x [16, 18) from 6,
                                                      [8, 12) x [18, 23) from 7
    11      [12, 16) x [18, 23)  [12, 16) x [16, 23)  [12, 16) x [16, 18) from 10

Emitted by
    shardwright emit --mesh x=3,y=4 --shape 16x23 --dtype float32 --source '[{"x"}, {"y"}]' --target '[{"y"}, {"x"}]' --name transpose_3x4_uneven
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

SHAPE = (16, 23)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=3, "y"=4]>'
SOURCE = '[{"x"}, {"y"}]'
TARGET = '[{"y"}, {"x"}]'
LOCAL_SOURCE_SHAPE = (6, 6)
LOCAL_TARGET_SHAPE = (4, 8)
SOURCE_IDS = TARGET_IDS = range(12)  # by mesh position
PLAN = "881dd8dc252083aa"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position // 4 * 6
    lo1 = position % 4 * 6
    return lo0, min(lo0 + 6, 16), lo1, min(lo1 + 6, 23)


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position % 4 * 4
    lo1 = position // 4 * 8
    return lo0, lo0 + 4, lo1, min(lo1 + 8, 23)


def senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    first0 = receiver % 4 * 2 // 3
    last0 = (receiver % 4 * 4 + 3) // 6
    first1 = receiver // 4 * 4 // 3
    last1 = (min(receiver // 4 * 8 + 8, 23) - 1) // 6
    return [a0 * 4 + a1 for a0 in range(first0, last0 + 1) for a1 in range(first1, last1 + 1)]


def receivers(sender):
    """Return the positions that the parts of a source shard go to."""
    first0 = sender // 4 * 3 // 2
    last0 = (min(sender // 4 * 6 + 6, 16) - 1) // 4
    first1 = sender % 4 * 3 // 4
    last1 = (min(sender % 4 * 6 + 6, 23) - 1) // 8
    return [b1 * 4 + b0 for b0 in range(first0, last0 + 1) for b1 in range(first1, last1 + 1)]


@triton.jit(do_not_specialize=["receiver"])
def pull_kernel(
    peers,  # int64 [source positions]: the address of every source shard
    out,  # the target shard, viewed in the units of BLOCK
    receiver,  # position of this device in the target mesh
    BLOCK: tl.constexpr,  # shape of the block of one loop iteration: see `Block`
):
    """Copy blocks of tiles, each from its source shard. Offsets are in elements."""
    for place in range(tl.program_id(0), BLOCK.number, tl.num_programs(0)):
        number, block = place % 4, place // 4
        # A target shard of 4 meets up to 2 source shards of 6.
        # Each device starts with a different one.
        to0 = receiver % 4 * 4
        a0 = to0 // 6 + (number // 2 + receiver // 4) % 2
        from0 = a0 * 6
        low0 = max(from0, to0)
        high0 = min(from0 + 6, to0 + 4)
        width0 = high0 - low0
        # A target shard of 8 meets 2 source shards of 6.
        # Each device starts with a different one.
        to1 = receiver // 4 * 8
        a1 = to1 // 6 + (number % 2 + receiver % 4) % 2
        from1 = a1 * 6
        low1 = max(from1, to1)
        width1 = min(from1 + 6, min(to1 + 8, 23)) - low1
        held1 = min(from1 + 6, 23) - from1
        wanted1 = min(to1 + 8, 23) - to1
        sender = a0 * 4 + a1
        if low0 < high0:
            copy_rows(
                shard_at(peers, sender, out, BLOCK),
                out,
                read=(low0 - from0) * held1 + low1 - from1,
                write=(low0 - to0) * wanted1 + low1 - to1,
                rows=width0,
                columns=width1,
                read_row=held1,
                write_row=wanted1,
                block=tl.cast(block, tl.int32),
                BLOCK=BLOCK,
            )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(number=4, width=1, lanes=1, rows=4, columns=8, largest=(4, 6))
_HOST = Reshard(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers, then moves elements
