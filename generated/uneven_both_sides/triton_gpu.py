"""Reshards float32[7, 13, 29] over 8 devices: [{"x"}, {"y", "z"}, {}] -> [{}, {"z"}, {"y", "x"}].

Source: [{"x"}, {"y", "z"}, {}] on <["x"=2, "y"=2, "z"=2]>, shards of 4 x 4 x 29.
    d1(x, y, z)[k0, k1, k2] -> t[x * 4 + k0, y * 8 + z * 4 + k1, k2]
    The last shards along dimensions 0 and 1 are short or empty, and are stored without padding:
        device 7 has 3 x 1 x 29.
Target: [{}, {"z"}, {"y", "x"}] on <["x"=2, "y"=2, "z"=2]>, shards of 7 x 7 x 8.
    d2(x, y, z)[k0, k1, k2] -> t[k0, z * 7 + k1, y * 16 + x * 8 + k2]
    The last shards along dimensions 1 and 2 are short or empty, and are stored without padding:
        device 7 has 7 x 6 x 5.

Along dimension 0, source shards of 4 meet target shards of 7: 2 source shards for each target
    shard.
Along dimension 1, source shards of 4 meet target shards of 7: up to 3 source shards for each target
    shard.
Along dimension 2, source shards of 29 meet target shards of 8: one source shard for each target
    shard.
Each tile has one holder, which sends it.
No device receives over 1568 bytes or sends over 1856, the least possible.
All devices together receive 9248.

    device  before                       after
    0       [0, 4) x [0, 4) x [0, 29)    [0, 7) x [0, 7) x [0, 8)
            receives [0, 4) x [4, 7) x [0, 8) from 1, [4, 7) x [0, 4) x [0, 8) from 4,
            [4, 7) x [4, 7) x [0, 8) from 5
    1       [0, 4) x [4, 8) x [0, 29)    [0, 7) x [7, 13) x [0, 8)
            receives [0, 4) x [8, 12) x [0, 8) from 2, [0, 4) x [12, 13) x [0, 8) from 3,
            [4, 7) x [7, 8) x [0, 8) from 5, [4, 7) x [8, 12) x [0, 8) from 6,
            [4, 7) x [12, 13) x [0, 8) from 7
    2       [0, 4) x [8, 12) x [0, 29)   [0, 7) x [0, 7) x [16, 24)
            receives [0, 4) x [0, 4) x [16, 24) from 0, [0, 4) x [4, 7) x [16, 24) from 1,
            [4, 7) x [0, 4) x [16, 24) from 4, [4, 7) x [4, 7) x [16, 24) from 5
    3       [0, 4) x [12, 13) x [0, 29)  [0, 7) x [7, 13) x [16, 24)
            receives [0, 4) x [7, 8) x [16, 24) from 1, [0, 4) x [8, 12) x [16, 24) from 2,
            [4, 7) x [7, 8) x [16, 24) from 5, [4, 7) x [8, 12) x [16, 24) from 6,
            [4, 7) x [12, 13) x [16, 24) from 7
    4       [4, 7) x [0, 4) x [0, 29)    [0, 7) x [0, 7) x [8, 16)
            receives [0, 4) x [0, 4) x [8, 16) from 0, [0, 4) x [4, 7) x [8, 16) from 1,
            [4, 7) x [4, 7) x [8, 16) from 5
    5       [4, 7) x [4, 8) x [0, 29)    [0, 7) x [7, 13) x [8, 16)
            receives [0, 4) x [7, 8) x [8, 16) from 1, [0, 4) x [8, 12) x [8, 16) from 2,
            [0, 4) x [12, 13) x [8, 16) from 3, [4, 7) x [8, 12) x [8, 16) from 6,
            [4, 7) x [12, 13) x [8, 16) from 7
    6       [4, 7) x [8, 12) x [0, 29)   [0, 7) x [0, 7) x [24, 29)
            receives [0, 4) x [0, 4) x [24, 29) from 0, [0, 4) x [4, 7) x [24, 29) from 1,
            [4, 7) x [0, 4) x [24, 29) from 4, [4, 7) x [4, 7) x [24, 29) from 5
    7       [4, 7) x [12, 13) x [0, 29)  [0, 7) x [7, 13) x [24, 29)
            receives [0, 4) x [7, 8) x [24, 29) from 1, [0, 4) x [8, 12) x [24, 29) from 2,
            [0, 4) x [12, 13) x [24, 29) from 3, [4, 7) x [7, 8) x [24, 29) from 5,
            [4, 7) x [8, 12) x [24, 29) from 6

Emitted by
    shardwright emit --mesh x=2,y=2,z=2 --shape 7x13x29 --dtype float32 --source '[{"x"}, {"y", "z"}, {}]' --target '[{}, {"z"}, {"y", "x"}]' --backends pallas_tpu,triton_gpu,jax_xla --name uneven_both_sides
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

SHAPE = (7, 13, 29)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=2, "z"=2]>'
SOURCE = '[{"x"}, {"y", "z"}, {}]'
TARGET = '[{}, {"z"}, {"y", "x"}]'
LOCAL_SOURCE_SHAPE = (4, 4, 29)
LOCAL_TARGET_SHAPE = (7, 7, 8)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "1e2916a2f71a9b7c"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position // 4 * 4
    lo1 = position % 4 * 4
    return lo0, min(lo0 + 4, 7), lo1, min(lo1 + 4, 13), 0, 29


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo1 = position % 2 * 7
    lo2 = position // 2 % 2 * 16 + position // 4 * 8
    return 0, 7, lo1, min(lo1 + 7, 13), lo2, min(lo2 + 8, 29)


def senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    first1 = receiver % 2 * 7 // 4
    last1 = (min(receiver % 2 * 7 + 7, 13) - 1) // 4
    return [a0 * 4 + a1 for a0 in range(2) for a1 in range(first1, last1 + 1)]


def receivers(sender):
    """Return the positions that the parts of a source shard go to."""
    first1 = sender % 4 * 4 // 7
    last1 = (min(sender % 4 * 4 + 4, 13) - 1) // 7
    return [b2 % 2 * 4 + b2 // 2 * 2 + b1 for b1 in range(first1, last1 + 1) for b2 in range(4)]


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
        index0, block = block % 4, block // 4
        # A target shard of 7 meets 2 source shards of 4.
        # Each device starts with a different one and ends with its own.
        a0 = (number // 3 + receiver // 4 + 1) % 2
        from0 = a0 * 4
        width0 = min(from0 + 4, 7) - from0
        # A target shard of 7 meets up to 3 source shards of 4.
        # Each device starts with a different one.
        to1 = receiver % 2 * 7
        a1 = to1 // 4 + (number % 3 + receiver % 4) % 3
        from1 = a1 * 4
        low1 = max(from1, to1)
        high1 = min(from1 + 4, min(to1 + 7, 13))
        width1 = high1 - low1
        held1 = min(from1 + 4, 13) - from1
        wanted1 = min(to1 + 7, 13) - to1
        # A target shard of 8 meets one source shard of 29.
        to2 = receiver // 2 % 2 * 16 + receiver // 4 * 8
        width2 = min(to2 + 8, 29) - to2
        sender = a0 * 4 + a1
        if (low1 < high1) & (index0 < width0):
            copy_rows(
                shard_at(peers, sender, out, BLOCK),
                out,
                read=index0 * (held1 * 29) + (low1 - from1) * 29 + to2,
                write=(from0 + index0) * (wanted1 * width2) + (low1 - to1) * width2,
                rows=width1,
                columns=width2,
                read_row=29,
                write_row=width2,
                block=tl.cast(block, tl.int32),
                BLOCK=BLOCK,
            )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(number=6, width=1, lanes=1, rows=4, columns=8, largest=(4, 4, 8))
_HOST = Reshard(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers, then moves elements
