"""Reshards int8[4, 4] over 8 devices: [{"x"}, {"y", "z"}] -> [{"x", "y"}, {"z"}].

Source: [{"x"}, {"y", "z"}] on <["x"=2, "y"=2, "z"=2]>, shards of 2 x 1.
    d1(x, y, z)[k0, k1] -> t[x * 2 + k0, y * 2 + k1 + z]
Target: [{"x", "y"}, {"z"}] on <["x"=2, "y"=2, "z"=2]>, shards of 1 x 2.
    d2(x, y, z)[k0, k1] -> t[x * 2 + k0 + y, z * 2 + k1]

Along dimension 0, source shards of 2 meet target shards of 1: one source shard for each target
    shard.
Along dimension 1, source shards of 1 meet target shards of 2: 2 source shards for each target
    shard.
Each tile has one holder, which sends it.
No device receives over 2 bytes or sends over 2, the least possible.
All devices together receive 12.

    device  before           after            receives
    0       [0, 2) x [0, 1)  [0, 1) x [0, 2)  [0, 1) x [1, 2) from 1
    1       [0, 2) x [1, 2)  [0, 1) x [2, 4)  [0, 1) x [2, 3) from 2, [0, 1) x [3, 4) from 3
    2       [0, 2) x [2, 3)  [1, 2) x [0, 2)  [1, 2) x [0, 1) from 0, [1, 2) x [1, 2) from 1
    3       [0, 2) x [3, 4)  [1, 2) x [2, 4)  [1, 2) x [2, 3) from 2
    4       [2, 4) x [0, 1)  [2, 3) x [0, 2)  [2, 3) x [1, 2) from 5
    5       [2, 4) x [1, 2)  [2, 3) x [2, 4)  [2, 3) x [2, 3) from 6, [2, 3) x [3, 4) from 7
    6       [2, 4) x [2, 3)  [3, 4) x [0, 2)  [3, 4) x [0, 1) from 4, [3, 4) x [1, 2) from 5
    7       [2, 4) x [3, 4)  [3, 4) x [2, 4)  [3, 4) x [2, 3) from 6

Emitted by
    shardwright emit --mesh x=2,y=2,z=2 --shape 4x4 --dtype int8 --source '[{"x"}, {"y", "z"}]' --target '[{"x", "y"}, {"z"}]' --name move_major_2x2x2
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

SHAPE = (4, 4)
DTYPE = "int8"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=2, "z"=2]>'
SOURCE = '[{"x"}, {"y", "z"}]'
TARGET = '[{"x", "y"}, {"z"}]'
LOCAL_SOURCE_SHAPE = (2, 1)
LOCAL_TARGET_SHAPE = (1, 2)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "1dfc569fb6345f96"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position // 4 * 2
    lo1 = position % 4
    return lo0, lo0 + 2, lo1, lo1 + 1


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position // 2
    lo1 = position % 2 * 2
    return lo0, lo0 + 1, lo1, lo1 + 2


def senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    return [receiver // 4 * 4 + a1 for a1 in range(receiver % 2 * 2, receiver % 2 * 2 + 2)]


def receivers(sender):
    """Return the positions that the parts of a source shard go to."""
    return [b0 * 2 + sender // 2 % 2 for b0 in range(sender // 4 * 2, sender // 4 * 2 + 2)]


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
        # A target shard of 1 meets one source shard of 2.
        to0 = receiver // 2
        a0 = to0 // 2
        from0 = a0 * 2
        # A target shard of 2 meets 2 source shards of 1.
        # Each device starts with a different one and ends with its own.
        to1 = receiver % 2 * 2
        a1 = (receiver % 4 + number + 1) % 2 + to1
        sender = a0 * 4 + a1
        copy_rows(
            shard_at(peers, sender, out, BLOCK),
            out,
            read=to0 - from0,
            write=a1 - to1,
            rows=1,
            columns=1,
            read_row=1,
            write_row=2,
            block=tl.cast(block, tl.int32),
            BLOCK=BLOCK,
        )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(number=2, width=1, lanes=1, rows=1, columns=1, largest=(1, 1), together=BOTH)
_HOST = Reshard(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers, then moves elements
