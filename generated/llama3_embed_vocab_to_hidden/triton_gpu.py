"""Reshards bfloat16[128256, 8192] over 8 devices: [{"x"}, {}] -> [{}, {"x"}].

Source: [{"x"}, {}] on <["x"=8]>, shards of 16032 x 8192.
    d1(x)[k0, k1] -> t[x * 16032 + k0, k1]
Target: [{}, {"x"}] on <["x"=8]>, shards of 128256 x 1024.
    d2(x)[k0, k1] -> t[k0, x * 1024 + k1]

Along dimension 0, source shards of 16032 meet target shards of 128256: 8 source shards for each
    target shard.
Along dimension 1, source shards of 8192 meet target shards of 1024: one source shard for each
    target shard.
Each tile has one holder, which sends it.
No device receives over 229834752 bytes or sends over 229834752, the least possible.
All devices together receive 1838678016.

A device sends the intersection of its range before and the receiver's after.

    device  before                        after                       receives
    0       [0, 16032) x [0, 8192)        [0, 128256) x [0, 1024)     from 1, 2, 3, 4, 5, 6, 7
    1       [16032, 32064) x [0, 8192)    [0, 128256) x [1024, 2048)  from 0, 2, 3, 4, 5, 6, 7
    2       [32064, 48096) x [0, 8192)    [0, 128256) x [2048, 3072)  from 0, 1, 3, 4, 5, 6, 7
    3       [48096, 64128) x [0, 8192)    [0, 128256) x [3072, 4096)  from 0, 1, 2, 4, 5, 6, 7
    4       [64128, 80160) x [0, 8192)    [0, 128256) x [4096, 5120)  from 0, 1, 2, 3, 5, 6, 7
    5       [80160, 96192) x [0, 8192)    [0, 128256) x [5120, 6144)  from 0, 1, 2, 3, 4, 6, 7
    6       [96192, 112224) x [0, 8192)   [0, 128256) x [6144, 7168)  from 0, 1, 2, 3, 4, 5, 7
    7       [112224, 128256) x [0, 8192)  [0, 128256) x [7168, 8192)  from 0, 1, 2, 3, 4, 5, 6

Emitted by
    shardwright emit --mesh x=8 --shape 128256x8192 --dtype bfloat16 --source '[{"x"}, {}]' --target '[{}, {"x"}]' --name llama3_embed_vocab_to_hidden
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

SHAPE = (128256, 8192)
DTYPE = "bfloat16"
SOURCE_MESH = TARGET_MESH = '<["x"=8]>'
SOURCE = '[{"x"}, {}]'
TARGET = '[{}, {"x"}]'
LOCAL_SOURCE_SHAPE = (16032, 8192)
LOCAL_TARGET_SHAPE = (128256, 1024)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "b78edc7f091b6913"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position * 16032
    return lo0, lo0 + 16032, 0, 8192


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo1 = position * 1024
    return 0, 128256, lo1, lo1 + 1024


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
        # A target shard of 128256 meets 8 source shards of 16032.
        # Each device starts with a different one and ends with its own.
        a0 = (number + receiver + 1) % 8
        from0 = a0 * 16032
        # A target shard of 1024 meets one source shard of 8192.
        to1 = receiver * 1024
        sender = a0
        copy_rows(
            shard_at(peers, sender, out, BLOCK),
            out,
            read=to1,
            write=from0 * 1024,
            rows=16032,
            columns=1024,
            read_row=8192,
            write_row=1024,
            block=tl.cast(block, tl.int32),
            BLOCK=BLOCK,
        )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(
    number=8, width=4, lanes=2, rows=4, columns=256, largest=(16032, 1024), together=("target",)
)
_HOST = Reshard(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers; the tensor is too large to move
