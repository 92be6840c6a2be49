"""Reshards float32[16, 16, 16] over 8 devices: [{"x"}, {"y"}, {}] -> [{}, {"x"}, {"y"}].

Source: [{"x"}, {"y"}, {}] on <["x"=4, "y"=2]>, shards of 4 x 8 x 16.
    d1(x, y)[k0, k1, k2] -> t[x * 4 + k0, y * 8 + k1, k2]
Target: [{}, {"x"}, {"y"}] on <["x"=4, "y"=2]>, shards of 16 x 4 x 8.
    d2(x, y)[k0, k1, k2] -> t[k0, x * 4 + k1, y * 8 + k2]

Along dimension 0, source shards of 4 meet target shards of 16: 4 source shards for each target
    shard.
Along dimension 1, source shards of 8 meet target shards of 4: one source shard for each target
    shard.
Along dimension 2, source shards of 16 meet target shards of 8: one source shard for each target
    shard.
Each tile has one holder, which sends it.
No device receives over 2048 bytes or sends over 2048, the least possible.
All devices together receive 14336.

    device  before                        after
    0       [0, 4) x [0, 8) x [0, 16)     [0, 16) x [0, 4) x [0, 8)
            receives [4, 8) x [0, 4) x [0, 8) from 2, [8, 12) x [0, 4) x [0, 8) from 4,
            [12, 16) x [0, 4) x [0, 8) from 6
    1       [0, 4) x [8, 16) x [0, 16)    [0, 16) x [0, 4) x [8, 16)
            receives [0, 4) x [0, 4) x [8, 16) from 0, [4, 8) x [0, 4) x [8, 16) from 2,
            [8, 12) x [0, 4) x [8, 16) from 4, [12, 16) x [0, 4) x [8, 16) from 6
    2       [4, 8) x [0, 8) x [0, 16)     [0, 16) x [4, 8) x [0, 8)
            receives [0, 4) x [4, 8) x [0, 8) from 0, [8, 12) x [4, 8) x [0, 8) from 4,
            [12, 16) x [4, 8) x [0, 8) from 6
    3       [4, 8) x [8, 16) x [0, 16)    [0, 16) x [4, 8) x [8, 16)
            receives [0, 4) x [4, 8) x [8, 16) from 0, [4, 8) x [4, 8) x [8, 16) from 2,
            [8, 12) x [4, 8) x [8, 16) from 4, [12, 16) x [4, 8) x [8, 16) from 6
    4       [8, 12) x [0, 8) x [0, 16)    [0, 16) x [8, 12) x [0, 8)
            receives [0, 4) x [8, 12) x [0, 8) from 1, [4, 8) x [8, 12) x [0, 8) from 3,
            [8, 12) x [8, 12) x [0, 8) from 5, [12, 16) x [8, 12) x [0, 8) from 7
    5       [8, 12) x [8, 16) x [0, 16)   [0, 16) x [8, 12) x [8, 16)
            receives [0, 4) x [8, 12) x [8, 16) from 1, [4, 8) x [8, 12) x [8, 16) from 3,
            [12, 16) x [8, 12) x [8, 16) from 7
    6       [12, 16) x [0, 8) x [0, 16)   [0, 16) x [12, 16) x [0, 8)
            receives [0, 4) x [12, 16) x [0, 8) from 1, [4, 8) x [12, 16) x [0, 8) from 3,
            [8, 12) x [12, 16) x [0, 8) from 5, [12, 16) x [12, 16) x [0, 8) from 7
    7       [12, 16) x [8, 16) x [0, 16)  [0, 16) x [12, 16) x [8, 16)
            receives [0, 4) x [12, 16) x [8, 16) from 1, [4, 8) x [12, 16) x [8, 16) from 3,
            [8, 12) x [12, 16) x [8, 16) from 5

Emitted by
    shardwright emit --mesh x=4,y=2 --shape 16x16x16 --dtype float32 --source '[{"x"}, {"y"}, {}]' --target '[{}, {"x"}, {"y"}]' --name xla_15207
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

SHAPE = (16, 16, 16)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=4, "y"=2]>'
SOURCE = '[{"x"}, {"y"}, {}]'
TARGET = '[{}, {"x"}, {"y"}]'
LOCAL_SOURCE_SHAPE = (4, 8, 16)
LOCAL_TARGET_SHAPE = (16, 4, 8)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "cd982f39ecda540e"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position // 2 * 4
    lo1 = position % 2 * 8
    return lo0, lo0 + 4, lo1, lo1 + 8, 0, 16


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo1 = position // 2 * 4
    lo2 = position % 2 * 8
    return 0, 16, lo1, lo1 + 4, lo2, lo2 + 8


def senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    return [a0 * 2 + receiver // 4 for a0 in range(4)]


def receivers(sender):
    """Return the positions that the parts of a source shard go to."""
    return [b1 * 2 + b2 for b1 in range(sender % 2 * 2, sender % 2 * 2 + 2) for b2 in range(2)]


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
        index0, block = block % 4, block // 4
        # A target shard of 16 meets 4 source shards of 4.
        # Each device starts with a different one and ends with its own.
        a0 = (receiver // 2 + number + 1) % 4
        from0 = a0 * 4
        # A target shard of 4 meets one source shard of 8.
        to1 = receiver // 2 * 4
        a1 = to1 // 8
        from1 = a1 * 8
        # A target shard of 8 meets one source shard of 16.
        to2 = receiver % 2 * 8
        sender = a0 * 2 + a1
        copy_rows(
            shard_at(peers, sender, out, BLOCK),
            out,
            read=index0 * 128 + (to1 - from1) * 16 + to2,
            write=(from0 + index0) * 32,
            rows=4,
            columns=8,
            read_row=16,
            write_row=8,
            block=tl.cast(block, tl.int32),
            BLOCK=BLOCK,
        )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(
    number=4, width=2, lanes=2, rows=128, columns=4, largest=(4, 4, 8), together=("target",)
)
_HOST = Reshard(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers, then moves elements
