"""Reshards bfloat16[10, 9] over 7 devices: [{"data", "model"}, {}] -> [{}, {"tp"}].

Source: [{"data", "model"}, {}] on <["data"=2, "model"=2]>, shards of 3 x 9.
    d1(data, model)[k0, k1] -> t[data * 6 + model * 3 + k0, k1]
    The last shards along dimension 0 are short or empty, and are stored without padding: device 3
        has 1 x 9.
Target: [{}, {"tp"}] on <["tp"=3]> (device ids below), shards of 10 x 3.
    d2(tp)[k0, k1] -> t[k0, tp * 3 + k1]

Along dimension 0, source shards of 3 meet target shards of 10: 4 source shards for each target
    shard.
Along dimension 1, source shards of 9 meet target shards of 3: one source shard for each target
    shard.
Each tile has one holder, which sends it.
No device receives over 60 bytes or sends over 54, the least possible.
All devices together receive 180.

    device  before            after             receives
    0       [0, 3) x [0, 9)   -                 nothing
    1       [3, 6) x [0, 9)   -                 nothing
    2       [6, 9) x [0, 9)   -                 nothing
    3       [9, 10) x [0, 9)  -                 nothing
    4       -                 [0, 10) x [0, 3)  [0, 3) x [0, 3) from 0, [3, 6) x [0, 3) from 1,
                                                [6, 9) x [0, 3) from 2, [9, 10) x [0, 3) from 3
    5       -                 [0, 10) x [3, 6)  [0, 3) x [3, 6) from 0, [3, 6) x [3, 6) from 1,
                                                [6, 9) x [3, 6) from 2, [9, 10) x [3, 6) from 3
    6       -                 [0, 10) x [6, 9)  [0, 3) x [6, 9) from 0, [3, 6) x [6, 9) from 1,
                                                [6, 9) x [6, 9) from 2, [9, 10) x [6, 9) from 3

Emitted by
    shardwright emit --mesh data=2,model=2 --shape 10x9 --dtype bfloat16 --source '[{"data", "model"}, {}]' --target '[{}, {"tp"}]' --target-mesh '<["tp"=3], device_ids=[4, 5, 6]>' --name trainer_to_server
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

SHAPE = (10, 9)
DTYPE = "bfloat16"
SOURCE_MESH = '<["data"=2, "model"=2]>'
TARGET_MESH = '<["tp"=3], device_ids=[4, 5, 6]>'
SOURCE = '[{"data", "model"}, {}]'
TARGET = '[{}, {"tp"}]'
LOCAL_SOURCE_SHAPE = (3, 9)
LOCAL_TARGET_SHAPE = (10, 3)
# Device ids by mesh position.
SOURCE_IDS = range(4)
TARGET_IDS = range(4, 7)
PLAN = "428ecfb4d50de6c3"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position * 3
    return lo0, min(lo0 + 3, 10), 0, 9


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo1 = position * 3
    return 0, 10, lo1, lo1 + 3


def senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    return range(4)


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
        number, block = place % 4, place // 4
        # A target shard of 10 meets 4 source shards of 3.
        # Each device starts with a different one.
        a0 = (number + receiver) % 4
        from0 = a0 * 3
        width0 = min(from0 + 3, 10) - from0
        # A target shard of 3 meets one source shard of 9.
        to1 = receiver * 3
        sender = a0
        copy_rows(
            shard_at(peers, sender, out, BLOCK),
            out,
            read=to1,
            write=from0 * 3,
            rows=width0,
            columns=3,
            read_row=9,
            write_row=3,
            block=tl.cast(block, tl.int32),
            BLOCK=BLOCK,
        )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(number=4, width=1, lanes=1, rows=4, columns=4, largest=(3, 3), together=("target",))
_HOST = Reshard(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers, then moves elements
