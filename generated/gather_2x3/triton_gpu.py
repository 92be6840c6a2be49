"""Reshards int32[6] over 6 devices: [{"x"}] -> [{}].

Source: [{"x"}] on <["x"=2, "y"=3]>, shards of 3.
    d1(x, y)[k0] -> t[x * 3 + k0]
Target: [{}] on <["x"=2, "y"=3]>, shards of 6.
    d2(x, y)[k0] -> t[k0]

Along dimension 0, source shards of 3 meet target shards of 6: 2 source shards for each target
    shard.
Of the 3 holders of a tile, the sender is the one whose coordinates along the axes that do not split
    the source equal the receiver's.
No device receives over 12 bytes or sends over 12, the least possible.
All devices together receive 72.

    device  before  after   receives
    0       [0, 3)  [0, 6)  [3, 6) from 3
    1       [0, 3)  [0, 6)  [3, 6) from 4
    2       [0, 3)  [0, 6)  [3, 6) from 5
    3       [3, 6)  [0, 6)  [0, 3) from 0
    4       [3, 6)  [0, 6)  [0, 3) from 1
    5       [3, 6)  [0, 6)  [0, 3) from 2

Emitted by
    shardwright emit --mesh x=2,y=3 --shape 6 --dtype int32 --source '[{"x"}]' --target '[{}]' --name gather_2x3
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

SHAPE = (6,)
DTYPE = "int32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=3]>'
SOURCE = '[{"x"}]'
TARGET = "[{}]"
LOCAL_SOURCE_SHAPE = (3,)
LOCAL_TARGET_SHAPE = (6,)
SOURCE_IDS = TARGET_IDS = range(6)  # by mesh position
PLAN = "1703689f30b879a0"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position // 3 * 3
    return lo0, lo0 + 3


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    return 0, 6


def senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    return [a0 * 3 + receiver % 3 for a0 in range(2)]


def receivers(sender):
    """Return the positions that the parts of a source shard go to."""
    for replica in range(6):
        receiver = replica
        if receiver % 3 == sender % 3:
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
        # A target shard of 6 meets 2 source shards of 3.
        # Each device starts with a different one and ends with its own.
        a0 = (receiver // 3 + number + 1) % 2
        from0 = a0 * 3
        sender = a0 * 3 + receiver % 3
        copy_rows(
            shard_at(peers, sender, out, BLOCK),
            out,
            read=0,
            write=from0,
            rows=1,
            columns=3,
            read_row=0,
            write_row=0,
            block=tl.cast(block, tl.int32),
            BLOCK=BLOCK,
        )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(number=2, width=1, lanes=1, rows=1, columns=4, largest=(1, 3), together=BOTH)
_HOST = Reshard(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers, then moves elements
