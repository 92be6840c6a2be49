"""Reshards float32[5, 3] over 4 devices: [{"x", "y"}, {}] -> [{"x", "y"}, {}].

Source: [{"x", "y"}, {}] on <["x"=2, "y"=2]>, shards of 2 x 3.
    d1(x, y)[k0, k1] -> t[x * 3 + k0 + (min(3, 5 - x * 3) + 1) // 2 * y, k1]
    The last shards along dimension 0 are short or empty, and are stored without padding: device 1
        has 1 x 3.
Target: [{"x", "y"}, {}] on <["x"=2, "y"=2]>, shards of 2 x 3.
    d2(x, y)[k0, k1] -> t[x * 4 + y * 2 + k0, k1]
    The last shards along dimension 0 are short or empty, and are stored without padding: device 2
        has 1 x 3.

Along dimension 0, source shards of 2 meet target shards of 2: up to 2 source shards for each target
    shard.
Each tile has one holder, which sends it.
No device receives over 12 bytes or sends over 12, the least possible.
All devices together receive 24.

Ranges along dimension 0:

    device  before  after   receives
    0       [0, 2)  [0, 2)  nothing
    1       [2, 3)  [2, 4)  [3, 4) from 2
    2       [3, 4)  [4, 5)  [4, 5) from 3
    3       [4, 5)  empty   nothing

Emitted by
    shardwright emit --mesh x=2,y=2 --shape 5x3 --dtype float32 --source '[{"x", "y"}, {}]' --target '[{"x", "y"}, {}]' --source-split nested --name torch_nested_2x2
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

SHAPE = (5, 3)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=2]>'
SOURCE = '[{"x", "y"}, {}]'
TARGET = '[{"x", "y"}, {}]'
LOCAL_SOURCE_SHAPE = LOCAL_TARGET_SHAPE = (2, 3)
SOURCE_IDS = TARGET_IDS = range(4)  # by mesh position
PLAN = "441183c62af0e638"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    offset0 = position // 2 * 3
    length0 = min(3, 5 - offset0)
    chunk0 = (length0 + 1) // 2
    offset0_1 = min(position % 2 * chunk0, length0)
    lo0 = offset0 + offset0_1
    length0_1 = min(chunk0, length0 - offset0_1)
    return lo0, length0_1 + lo0, 0, 3


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = min(position * 2, 5)
    return lo0, min(lo0 + 2, 5), 0, 3


def senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    peer_digit0 = min(receiver * 2, 4) // 3
    peer_rest0 = min(receiver * 2, 4) - peer_digit0 * 3
    peer_chunk0 = (min(3, 5 - peer_digit0 * 3) + 1) // 2
    peer_index0 = peer_digit0 * 2 + peer_rest0 // peer_chunk0
    peer_digit0_2 = (min(min(receiver * 2, 5) + 2, 5) - 1) // 3
    peer_rest0_2 = min(min(receiver * 2, 5) + 2, 5) - peer_digit0_2 * 3 - 1
    peer_chunk0_1 = (min(3, 5 - peer_digit0_2 * 3) + 1) // 2
    peer_index0_1 = peer_digit0_2 * 2 + peer_rest0_2 // peer_chunk0_1
    return range(peer_index0, peer_index0_1 + 1)


def receivers(sender):
    """Return the positions that the parts of a source shard go to."""
    offset0 = sender // 2 * 3
    length0 = min(3, 5 - offset0)
    chunk0 = (length0 + 1) // 2
    offset0_1 = min(sender % 2 * chunk0, length0)
    lo0 = offset0 + offset0_1
    length0_1 = min(chunk0, length0 - offset0_1)
    first0 = min(lo0, 4) // 2
    last0 = (max(length0_1 + lo0, 1) - 1) // 2
    return range(first0, last0 + 1)


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
        # A target shard of 2 meets up to 2 source shards of 2.
        # Each device starts with a different one.
        to0 = receiver * 2
        first_digit0 = to0 // 3
        first_rest0 = to0 - first_digit0 * 3
        first_length0 = min(3, 5 - first_digit0 * 3)
        first_chunk0 = (first_length0 + 1) // 2
        first_index0 = first_digit0 * 2 + first_rest0 // first_chunk0
        a0 = (number + receiver) % 2 + first_index0
        source_offset0 = a0 // 2 * 3
        source_length0 = min(3, 5 - source_offset0)
        source_chunk0 = (source_length0 + 1) // 2
        source_offset0_1 = min(a0 % 2 * source_chunk0, source_length0)
        source_lo0 = source_offset0 + source_offset0_1
        source_length0_1 = min(source_chunk0, source_length0 - source_offset0_1)
        high0 = min(source_length0_1 + source_lo0, min(to0 + 2, 5))
        width0 = high0 - source_lo0
        sender = a0
        if (a0 < 4) & (source_lo0 < high0):
            copy_rows(
                shard_at(peers, sender, out, BLOCK),
                out,
                read=0,
                write=source_lo0 * 3 - to0 * 3,
                rows=1,
                columns=width0 * 3,
                read_row=0,
                write_row=0,
                block=tl.cast(block, tl.int32),
                BLOCK=BLOCK,
            )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(number=2, width=1, lanes=1, rows=1, columns=8, largest=(1, 6))
_HOST = Reshard(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers, then moves elements
