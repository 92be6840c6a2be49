"""Reshards int32[4, 6] over 6 devices: [{}, {"x", "y"}] -> [{}, {"x"}].

Source: [{}, {"x", "y"}] on <["x"=2, "y"=3]>, shards of 4 x 1.
    d1(x, y)[k0, k1] -> t[k0, x * 3 + k1 + y]
Target: [{}, {"x"}] on <["x"=2, "y"=3]>, shards of 4 x 3.
    d2(x, y)[k0, k1] -> t[k0, x * 3 + k1]

Along dimension 1, source shards of 1 meet target shards of 3: 3 source shards for each target
    shard.
Each tile has one holder, which sends it.
No device receives over 32 bytes or sends over 32, the least possible.
All devices together receive 192.

Ranges along dimension 1:

    device  before  after   receives
    0       [0, 1)  [0, 3)  [1, 2) from 1, [2, 3) from 2
    1       [1, 2)  [0, 3)  [0, 1) from 0, [2, 3) from 2
    2       [2, 3)  [0, 3)  [0, 1) from 0, [1, 2) from 1
    3       [3, 4)  [3, 6)  [4, 5) from 4, [5, 6) from 5
    4       [4, 5)  [3, 6)  [3, 4) from 3, [5, 6) from 5
    5       [5, 6)  [3, 6)  [3, 4) from 3, [4, 5) from 4

Emitted by
    shardwright emit --mesh x=2,y=3 --shape 4x6 --dtype int32 --source '[{}, {"x", "y"}]' --target '[{}, {"x"}]' --name gather_minor_2x3
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

SHAPE = (4, 6)
DTYPE = "int32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=3]>'
SOURCE = '[{}, {"x", "y"}]'
TARGET = '[{}, {"x"}]'
LOCAL_SOURCE_SHAPE = (4, 1)
LOCAL_TARGET_SHAPE = (4, 3)
SOURCE_IDS = TARGET_IDS = range(6)  # by mesh position
PLAN = "87451f1efdc7114c"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    return 0, 4, position, position + 1


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo1 = position // 3 * 3
    return 0, 4, lo1, lo1 + 3


def senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    return range(receiver // 3 * 3, receiver // 3 * 3 + 3)


def receivers(sender):
    """Return the positions that the parts of a source shard go to."""
    return [sender // 3 * 3 + replica for replica in range(3)]


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
        # A target shard of 3 meets 3 source shards of 1.
        # Each device starts with a different one and ends with its own.
        to1 = receiver // 3 * 3
        a1 = (number + receiver + 1) % 3 + to1
        sender = a1
        copy_rows(
            shard_at(peers, sender, out, BLOCK),
            out,
            read=0,
            write=a1 - to1,
            rows=4,
            columns=1,
            read_row=1,
            write_row=3,
            block=tl.cast(block, tl.int32),
            BLOCK=BLOCK,
        )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(number=3, width=1, lanes=1, rows=4, columns=1, largest=(4, 1), together=("source",))
_HOST = Reshard(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers, then moves elements
