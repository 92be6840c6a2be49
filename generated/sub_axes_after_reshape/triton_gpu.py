"""Reshards int8[64, 96] over 8 devices: [{"x"}, {}] -> [{"x":(1)2}, {"x":(2)2, "y"}].

Source: [{"x"}, {}] on <["x"=4, "y"=2]>, shards of 16 x 96.
    d1(x, y)[k0, k1] -> t[x * 16 + k0, k1]
Target: [{"x":(1)2}, {"x":(2)2, "y"}] on <["x"=4, "y"=2]>, shards of 32 x 24.
    d2(x, y)[k0, k1] -> t[x // 2 * 32 + k0, x % 2 * 48 + y * 24 + k1]

Along dimension 0, source shards of 16 meet target shards of 32: 2 source shards for each target
    shard.
Along dimension 1, source shards of 96 meet target shards of 24: one source shard for each target
    shard.
Of the 2 holders of a tile, the sender is the one whose coordinates along the axes that do not split
    the source equal the receiver's.
No device receives over 384 bytes or sends over 384, the least possible.
All devices together receive 3072.

    device  before              after                receives
    0       [0, 16) x [0, 96)   [0, 32) x [0, 24)    [16, 32) x [0, 24) from 2
    1       [0, 16) x [0, 96)   [0, 32) x [24, 48)   [16, 32) x [24, 48) from 3
    2       [16, 32) x [0, 96)  [0, 32) x [48, 72)   [0, 16) x [48, 72) from 0
    3       [16, 32) x [0, 96)  [0, 32) x [72, 96)   [0, 16) x [72, 96) from 1
    4       [32, 48) x [0, 96)  [32, 64) x [0, 24)   [48, 64) x [0, 24) from 6
    5       [32, 48) x [0, 96)  [32, 64) x [24, 48)  [48, 64) x [24, 48) from 7
    6       [48, 64) x [0, 96)  [32, 64) x [48, 72)  [32, 48) x [48, 72) from 4
    7       [48, 64) x [0, 96)  [32, 64) x [72, 96)  [32, 48) x [72, 96) from 5

Emitted by
    shardwright emit --mesh x=4,y=2 --shape 64x96 --dtype int8 --source '[{"x"}, {}]' --target '[{"x":(1)2}, {"x":(2)2, "y"}]' --name sub_axes_after_reshape
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

SHAPE = (64, 96)
DTYPE = "int8"
SOURCE_MESH = TARGET_MESH = '<["x"=4, "y"=2]>'
SOURCE = '[{"x"}, {}]'
TARGET = '[{"x":(1)2}, {"x":(2)2, "y"}]'
LOCAL_SOURCE_SHAPE = (16, 96)
LOCAL_TARGET_SHAPE = (32, 24)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "efe0dbc02bfb97fd"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position // 2 * 16
    return lo0, lo0 + 16, 0, 96


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position // 4 * 32
    lo1 = position % 4 * 24
    return lo0, lo0 + 32, lo1, lo1 + 24


def senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    return [a0 * 2 + receiver % 2 for a0 in range(receiver // 4 * 2, receiver // 4 * 2 + 2)]


def receivers(sender):
    """Return the positions that the parts of a source shard go to."""
    for b1 in range(4):
        receiver = sender // 4 * 4 + b1
        if receiver % 2 == sender % 2:
            yield receiver


@triton.jit(do_not_specialize=["receiver"])
def pull_kernel(
    peers,  # int64 [source positions]: the address of every source shard
    out,  # the target shard, viewed in the units of BLOCK
    receiver,  # position of this device in the target mesh
    BLOCK: tl.constexpr,  # shape of the block of one loop iteration: see `Block`
):
    """Copy blocks of tiles, each from its source shard. Offsets are in elements."""
    for place in range(tl.program_id(0), BLOCK.number, tl.num_programs(0)):
        number, block = place % 2, place // 2
        # A target shard of 32 meets 2 source shards of 16.
        # Each device starts with a different one and ends with its own.
        to0 = receiver // 4 * 32
        a0 = to0 // 16 + (receiver // 2 + number + 1) % 2
        from0 = a0 * 16
        # A target shard of 24 meets one source shard of 96.
        to1 = receiver % 4 * 24
        sender = a0 * 2 + receiver % 2
        copy_rows(
            shard_at(peers, sender, out, BLOCK),
            out,
            read=to1,
            write=(from0 - to0) * 24,
            rows=16,
            columns=24,
            read_row=96,
            write_row=24,
            block=tl.cast(block, tl.int32),
            BLOCK=BLOCK,
        )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(
    number=2, width=8, lanes=1, rows=16, columns=4, largest=(16, 24), together=("target",)
)
_HOST = Reshard(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers, then moves elements
