"""Reshards bfloat16[64, 48] over 8 devices: [{}, {"model"}], unreduced={"data"} -> [{"data"},
    {"model"}].

Source: [{}, {"model"}], unreduced={"data"} on <["data"=4, "model"=2]>, shards of 64 x 24.
    d1(data, model)[k0, k1] -> t[k0, model * 24 + k1]
Target: [{"data"}, {"model"}] on <["data"=4, "model"=2]>, shards of 16 x 24.
    d2(data, model)[k0, k1] -> t[data * 16 + k0, model * 24 + k1]

Along dimension 0, source shards of 64 meet target shards of 16: one source shard for each target
    shard.
Along dimension 1, source shards of 24 meet target shards of 24: one source shard for each target
    shard.
A value has 4 terms, along "data". A receiver adds them up in the order of their coordinates, as
    float32 that is rounded once.
Each term of a tile has one holder, which sends it.
No device receives over 2304 bytes or sends over 2304, the least possible.
All devices together receive 18432.

    device  before              after                receives
    0       [0, 64) x [0, 24)   [0, 16) x [0, 24)    [0, 16) x [0, 24) from 2, 4, 6
    1       [0, 64) x [24, 48)  [0, 16) x [24, 48)   [0, 16) x [24, 48) from 3, 5, 7
    2       [0, 64) x [0, 24)   [16, 32) x [0, 24)   [16, 32) x [0, 24) from 0, 4, 6
    3       [0, 64) x [24, 48)  [16, 32) x [24, 48)  [16, 32) x [24, 48) from 1, 5, 7
    4       [0, 64) x [0, 24)   [32, 48) x [0, 24)   [32, 48) x [0, 24) from 0, 2, 6
    5       [0, 64) x [24, 48)  [32, 48) x [24, 48)  [32, 48) x [24, 48) from 1, 3, 7
    6       [0, 64) x [0, 24)   [48, 64) x [0, 24)   [48, 64) x [0, 24) from 0, 2, 4
    7       [0, 64) x [24, 48)  [48, 64) x [24, 48)  [48, 64) x [24, 48) from 1, 3, 5

Emitted by
    shardwright emit --mesh data=4,model=2 --shape 64x48 --dtype bfloat16 --source '[{}, {"model"}], unreduced={"data"}' --target '[{"data"}, {"model"}]' --name reduce_scatter_2x4
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
from .._support.torch_reduce import Reduction
from .._support.triton_rows import BOTH, Tiles, read_once, rows_at, shard_at

require("triton_gpu", "c4a32583165833e8", __name__)
__all__ = ["reshard", "reshard_local", "source_shape", "target_shape"]

SHAPE = (64, 48)
DTYPE = "bfloat16"
SOURCE_MESH = TARGET_MESH = '<["data"=4, "model"=2]>'
SOURCE = '[{}, {"model"}], unreduced={"data"}'
TARGET = '[{"data"}, {"model"}]'
LOCAL_SOURCE_SHAPE = (64, 24)
LOCAL_TARGET_SHAPE = (16, 24)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "a5afa9e5d6b5a1a4"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Ranges (low, high) of terms, then of the tensor, of the source shard at a position."""
    term_lo0 = position // 2
    lo1 = position % 2 * 24
    return term_lo0, term_lo0 + 1, 0, 64, lo1, lo1 + 24


def target_box(position):
    """Ranges (low, high) of terms, then of the tensor, of the target shard at a position."""
    lo0 = position // 2 * 16
    lo1 = position % 2 * 24
    return 0, 4, lo0, lo0 + 16, lo1, lo1 + 24


def senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    return [term * 2 + receiver % 2 for term in range(4)]


def receivers(sender):
    """Return the positions that the parts of a source shard go to."""
    return [b0 * 2 + sender % 2 for b0 in range(4)]


@triton.jit(do_not_specialize=["receiver"])
def pull_kernel(
    peers,  # int64 [source positions]: the address of every source shard
    out,  # the target shard, viewed in the units of BLOCK
    receiver,  # position of this device in the target mesh
    BLOCK: tl.constexpr,  # shape of the block of one loop iteration: see `Block`
):
    """Add up blocks of tiles over all terms. Offsets are in elements."""
    for place in range(tl.program_id(0), BLOCK.number, tl.num_programs(0)):
        # A target shard of 16 meets one source shard of 64.
        to0 = receiver // 2 * 16
        read, write, inside = rows_at(
            read=to0 * 24,
            write=0,
            rows=1,
            columns=384,
            read_row=0,
            write_row=0,
            block=tl.cast(place, tl.int32),
            BLOCK=BLOCK,
        )
        total = tl.full([BLOCK.rows, BLOCK.columns], 0, tl.float32)
        for term in tl.static_range(4):
            sender = term * 2 + receiver % 2
            shard = shard_at(peers, sender, out, BLOCK)
            loaded = read_once(shard + read, inside).to(tl.float32)
            total += loaded
        tl.store(out + write, total.to(tl.bfloat16), mask=inside)


EXCHANGE = Exchange(
    Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers, hidden=(4,)
)
TILES = Tiles(number=1, width=1, lanes=8, rows=1, columns=2048, largest=(1, 384), together=BOTH)
_HOST = Reduction(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers, then moves elements
