"""Reshards float32[200, 200] over 8 devices: [{"x", "y"}, {}] -> [{}, {"x", "y"}].

Source: [{"x", "y"}, {}] on <["x"=2, "y"=4]>, shards of 25 x 200.
    d1(x, y)[k0, k1] -> t[x * 100 + y * 25 + k0, k1]
Target: [{}, {"x", "y"}] on <["x"=2, "y"=4]>, shards of 200 x 25.
    d2(x, y)[k0, k1] -> t[k0, x * 100 + y * 25 + k1]

Along dimension 0, source shards of 25 meet target shards of 200: 8 source shards for each target
    shard.
Along dimension 1, source shards of 200 meet target shards of 25: one source shard for each target
    shard.
Each tile has one holder, which sends it.
No device receives over 17500 bytes or sends over 17500, the least possible.
All devices together receive 140000.

A device sends the intersection of its range before and the receiver's after.

    device  before                 after                  receives
    0       [0, 25) x [0, 200)     [0, 200) x [0, 25)     from 1, 2, 3, 4, 5, 6, 7
    1       [25, 50) x [0, 200)    [0, 200) x [25, 50)    from 0, 2, 3, 4, 5, 6, 7
    2       [50, 75) x [0, 200)    [0, 200) x [50, 75)    from 0, 1, 3, 4, 5, 6, 7
    3       [75, 100) x [0, 200)   [0, 200) x [75, 100)   from 0, 1, 2, 4, 5, 6, 7
    4       [100, 125) x [0, 200)  [0, 200) x [100, 125)  from 0, 1, 2, 3, 5, 6, 7
    5       [125, 150) x [0, 200)  [0, 200) x [125, 150)  from 0, 1, 2, 3, 4, 6, 7
    6       [150, 175) x [0, 200)  [0, 200) x [150, 175)  from 0, 1, 2, 3, 4, 5, 7
    7       [175, 200) x [0, 200)  [0, 200) x [175, 200)  from 0, 1, 2, 3, 4, 5, 6

Emitted by
    shardwright emit --mesh x=2,y=4 --shape 200x200 --dtype float32 --source '[{"x", "y"}, {}]' --target '[{}, {"x", "y"}]' --topology torus:2x4,wrap=0x0,bandwidth=5e+10,latency=1e-06,powers_of_two=1,ragged=512,memory=8.19e+11 --name all_to_all_v5e
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

SHAPE = (200, 200)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=4]>'
SOURCE = '[{"x", "y"}, {}]'
TARGET = '[{}, {"x", "y"}]'
LOCAL_SOURCE_SHAPE = (25, 200)
LOCAL_TARGET_SHAPE = (200, 25)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "085a4ed719b2fbc4"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position * 25
    return lo0, lo0 + 25, 0, 200


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo1 = position * 25
    return 0, 200, lo1, lo1 + 25


def senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    return range(8)


def receivers(sender):
    """Return the positions that the parts of a source shard go to."""
    return range(8)


@triton.jit(do_not_specialize=["receiver"])
def pull_kernel(
    peers,  # int64 [source positions]: the address of every source shard
    out,  # the target shard, viewed in the units of BLOCK
    receiver,  # position of this device in the target mesh
    BLOCK: tl.constexpr,  # shape of the block of one loop iteration: see `Block`
):
    """Copy blocks of tiles, each from its source shard. Offsets are in elements."""
    for place in range(tl.program_id(0), BLOCK.number, tl.num_programs(0)):
        number, block = place % 8, place // 8
        # A target shard of 200 meets 8 source shards of 25.
        # Each device starts with a different one and ends with its own.
        a0 = (number + receiver + 1) % 8
        from0 = a0 * 25
        # A target shard of 25 meets one source shard of 200.
        to1 = receiver * 25
        sender = a0
        copy_rows(
            shard_at(peers, sender, out, BLOCK),
            out,
            read=to1,
            write=from0 * 25,
            rows=25,
            columns=25,
            read_row=200,
            write_row=25,
            block=tl.cast(block, tl.int32),
            BLOCK=BLOCK,
        )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(
    number=8, width=1, lanes=1, rows=32, columns=32, largest=(25, 25), together=("target",)
)
_HOST = Reshard(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers, then moves elements
