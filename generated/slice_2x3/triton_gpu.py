"""Reshards int32[6] over 6 devices: [{}] -> [{"y"}].

Source: [{}] on <["x"=2, "y"=3]>, shards of 6.
    d1(x, y)[k0] -> t[k0]
Target: [{"y"}] on <["x"=2, "y"=3]>, shards of 2.
    d2(x, y)[k0] -> t[y * 2 + k0]

Along dimension 0, source shards of 6 meet target shards of 2: one source shard for each target
    shard.
Of the 6 holders of a tile, the sender is the one whose coordinates along the axes that do not split
    the source equal the receiver's.
No device receives over 0 bytes or sends over 0, the least possible.
All devices together receive 0.

    device  before  after   receives
    0       [0, 6)  [0, 2)  nothing
    1       [0, 6)  [2, 4)  nothing
    2       [0, 6)  [4, 6)  nothing
    3       [0, 6)  [0, 2)  nothing
    4       [0, 6)  [2, 4)  nothing
    5       [0, 6)  [4, 6)  nothing

Emitted by
    shardwright emit --mesh x=2,y=3 --shape 6 --dtype int32 --source '[{}]' --target '[{"y"}]' --name slice_2x3
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

SHAPE = (6,)
DTYPE = "int32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=3]>'
SOURCE = "[{}]"
TARGET = '[{"y"}]'
LOCAL_SOURCE_SHAPE = (6,)
LOCAL_TARGET_SHAPE = (2,)
SOURCE_IDS = TARGET_IDS = range(6)  # by mesh position
PLAN = "5fc80ef08e5c4dcc"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    return 0, 6


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position % 3 * 2
    return lo0, lo0 + 2


def senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    return [receiver]


def receivers(sender):
    """Return the positions that the parts of a source shard go to."""
    for b0 in range(3):
        for replica in range(2):
            receiver = replica * 3 + b0
            if receiver == sender:
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
        # A target shard of 2 meets one source shard of 6.
        to0 = receiver % 3 * 2
        sender = receiver
        copy_rows(
            shard_at(peers, sender, out, BLOCK),
            out,
            read=to0,
            write=0,
            rows=1,
            columns=2,
            read_row=0,
            write_row=0,
            block=tl.cast(place, tl.int32),
            BLOCK=BLOCK,
        )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(number=1, width=2, lanes=1, rows=1, columns=1, largest=(1, 2))
_HOST = Reshard(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers, then moves elements
