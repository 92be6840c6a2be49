"""Reshards int8[6, 6] over 3 devices: [{"x"}, {}] -> [{}, {"x"}].

Source: [{"x"}, {}] on <["x"=3]>, shards of 2 x 6.
    d1(x)[k0, k1] -> t[x * 2 + k0, k1]
Target: [{}, {"x"}] on <["x"=3]>, shards of 6 x 2.
    d2(x)[k0, k1] -> t[k0, x * 2 + k1]

Along dimension 0, source shards of 2 meet target shards of 6: 3 source shards for each target
    shard.
Along dimension 1, source shards of 6 meet target shards of 2: one source shard for each target
    shard.
Each tile has one holder, which sends it.
No device receives over 8 bytes or sends over 8, the least possible.
All devices together receive 24.

    device  before           after            receives
    0       [0, 2) x [0, 6)  [0, 6) x [0, 2)  [2, 4) x [0, 2) from 1, [4, 6) x [0, 2) from 2
    1       [2, 4) x [0, 6)  [0, 6) x [2, 4)  [0, 2) x [2, 4) from 0, [4, 6) x [2, 4) from 2
    2       [4, 6) x [0, 6)  [0, 6) x [4, 6)  [0, 2) x [4, 6) from 0, [2, 4) x [4, 6) from 1

Emitted by
    shardwright emit --mesh x=3 --shape 6x6 --dtype int8 --source '[{"x"}, {}]' --target '[{}, {"x"}]' --name all_to_all_3
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

SHAPE = (6, 6)
DTYPE = "int8"
SOURCE_MESH = TARGET_MESH = '<["x"=3]>'
SOURCE = '[{"x"}, {}]'
TARGET = '[{}, {"x"}]'
LOCAL_SOURCE_SHAPE = (2, 6)
LOCAL_TARGET_SHAPE = (6, 2)
SOURCE_IDS = TARGET_IDS = range(3)  # by mesh position
PLAN = "e29b93370d6fcd92"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position * 2
    return lo0, lo0 + 2, 0, 6


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo1 = position * 2
    return 0, 6, lo1, lo1 + 2


def senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    return range(3)


def receivers(sender):
    """Return the positions that the parts of a source shard go to."""
    return range(3)


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
        # A target shard of 6 meets 3 source shards of 2.
        # Each device starts with a different one and ends with its own.
        a0 = (number + receiver + 1) % 3
        from0 = a0 * 2
        # A target shard of 2 meets one source shard of 6.
        to1 = receiver * 2
        sender = a0
        copy_rows(
            shard_at(peers, sender, out, BLOCK),
            out,
            read=to1,
            write=from0 * 2,
            rows=2,
            columns=2,
            read_row=6,
            write_row=2,
            block=tl.cast(block, tl.int32),
            BLOCK=BLOCK,
        )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(number=3, width=2, lanes=1, rows=2, columns=1, largest=(2, 2), together=("target",))
_HOST = Reshard(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers, then moves elements
