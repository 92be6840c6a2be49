"""Reshards float32[6, 6] over 6 devices: [{"x"}, {"y"}] -> [{"y"}, {"x"}].

Source: [{"x"}, {"y"}] on <["x"=2, "y"=3]>, shards of 3 x 2.
    d1(x, y)[k0, k1] -> t[x * 3 + k0, y * 2 + k1]
Target: [{"y"}, {"x"}] on <["x"=2, "y"=3]>, shards of 2 x 3.
    d2(x, y)[k0, k1] -> t[y * 2 + k0, x * 3 + k1]

Along dimension 0, source shards of 3 meet target shards of 2: up to 2 source shards for each target
    shard.
Along dimension 1, source shards of 2 meet target shards of 3: 2 source shards for each target
    shard.
Each tile has one holder, which sends it.
No device receives over 24 bytes or sends over 24, the least possible.
All devices together receive 104.

    device  before           after            receives
    0       [0, 3) x [0, 2)  [0, 2) x [0, 3)  [0, 2) x [2, 3) from 1
    1       [0, 3) x [2, 4)  [2, 4) x [0, 3)  [2, 3) x [0, 2) from 0, [3, 4) x [0, 2) from 3,
                                              [3, 4) x [2, 3) from 4
    2       [0, 3) x [4, 6)  [4, 6) x [0, 3)  [4, 6) x [0, 2) from 3, [4, 6) x [2, 3) from 4
    3       [3, 6) x [0, 2)  [0, 2) x [3, 6)  [0, 2) x [3, 4) from 1, [0, 2) x [4, 6) from 2
    4       [3, 6) x [2, 4)  [2, 4) x [3, 6)  [2, 3) x [3, 4) from 1, [2, 3) x [4, 6) from 2,
                                              [3, 4) x [4, 6) from 5
    5       [3, 6) x [4, 6)  [4, 6) x [3, 6)  [4, 6) x [3, 4) from 4

Emitted by
    shardwright emit --mesh x=2,y=3 --shape 6x6 --dtype float32 --source '[{"x"}, {"y"}]' --target '[{"y"}, {"x"}]' --backends pallas_tpu,triton_gpu,jax_xla --name transpose_2x3
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
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=3]>'
SOURCE = '[{"x"}, {"y"}]'
TARGET = '[{"y"}, {"x"}]'
LOCAL_SOURCE_SHAPE = (3, 2)
LOCAL_TARGET_SHAPE = (2, 3)
SOURCE_IDS = TARGET_IDS = range(6)  # by mesh position
PLAN = "360c3f1aba5d3d82"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position // 3 * 3
    lo1 = position % 3 * 2
    return lo0, lo0 + 3, lo1, lo1 + 2


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position % 3 * 2
    lo1 = position // 3 * 3
    return lo0, lo0 + 2, lo1, lo1 + 3


def senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    first0 = receiver % 3 * 2 // 3
    last0 = (receiver % 3 * 2 + 1) // 3
    first1 = receiver // 3 * 3 // 2
    return [a0 * 3 + a1 for a0 in range(first0, last0 + 1) for a1 in range(first1, first1 + 2)]


def receivers(sender):
    """Return the positions that the parts of a source shard go to."""
    first0 = sender // 3 * 3 // 2
    first1 = sender % 3 * 2 // 3
    last1 = (sender % 3 * 2 + 1) // 3
    return [b1 * 3 + b0 for b0 in range(first0, first0 + 2) for b1 in range(first1, last1 + 1)]


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
        # A target shard of 2 meets up to 2 source shards of 3.
        # Each device starts with a different one.
        to0 = receiver % 3 * 2
        a0 = to0 // 3 + (number // 2 + receiver // 3) % 2
        from0 = a0 * 3
        low0 = max(from0, to0)
        high0 = min(from0 + 3, to0 + 2)
        width0 = high0 - low0
        # A target shard of 3 meets 2 source shards of 2.
        # Each device starts with a different one.
        to1 = receiver // 3 * 3
        a1 = to1 // 2 + (number % 2 + receiver % 3) % 2
        from1 = a1 * 2
        low1 = max(from1, to1)
        width1 = min(from1 + 2, to1 + 3) - low1
        sender = a0 * 3 + a1
        if low0 < high0:
            copy_rows(
                shard_at(peers, sender, out, BLOCK),
                out,
                read=(low0 - from0) * 2 + low1 - from1,
                write=(low0 - to0) * 3 + low1 - to1,
                rows=width0,
                columns=width1,
                read_row=2,
                write_row=3,
                block=tl.cast(block, tl.int32),
                BLOCK=BLOCK,
            )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(number=4, width=1, lanes=1, rows=2, columns=2, largest=(2, 2))
_HOST = Reshard(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers, then moves elements
