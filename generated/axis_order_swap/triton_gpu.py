"""Reshards float32[1024, 512] over 8 devices: [{"x", "y"}, {}] -> [{"y", "x"}, {}].

Source: [{"x", "y"}, {}] on <["x"=2, "y"=4]>, shards of 128 x 512.
    d1(x, y)[k0, k1] -> t[x * 512 + y * 128 + k0, k1]
Target: [{"y", "x"}, {}] on <["x"=2, "y"=4]>, shards of 128 x 512.
    d2(x, y)[k0, k1] -> t[y * 256 + x * 128 + k0, k1]

Along dimension 0, source shards of 128 meet target shards of 128: one source shard for each target
    shard.
Each tile has one holder, which sends it.
No device receives over 262144 bytes or sends over 262144, the least possible.
All devices together receive 1572864.

A permutation: every shard goes whole to one device.

    device          0  1  2  3  4  5  6  7
    sends to        0  4  1  5  2  6  3  7
    receives from   0  2  4  6  1  3  5  7

Emitted by
    shardwright emit --mesh x=2,y=4 --shape 1024x512 --dtype float32 --source '[{"x", "y"}, {}]' --target '[{"y", "x"}, {}]' --name axis_order_swap
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

SHAPE = (1024, 512)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=4]>'
SOURCE = '[{"x", "y"}, {}]'
TARGET = '[{"y", "x"}, {}]'
LOCAL_SOURCE_SHAPE = LOCAL_TARGET_SHAPE = (128, 512)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "60cf65747ae487a5"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position * 128
    return lo0, lo0 + 128, 0, 512


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position % 4 * 256 + position // 4 * 128
    return lo0, lo0 + 128, 0, 512


def senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    return [receiver % 4 * 2 + receiver // 4]


def receivers(sender):
    """Return the positions that the parts of a source shard go to."""
    return [sender % 2 * 4 + sender // 2]


@triton.jit(do_not_specialize=["receiver"])
def pull_kernel(
    peers,  # int64 [source positions]: the address of every source shard
    out,  # the target shard, viewed in the units of BLOCK
    receiver,  # position of this device in the target mesh
    BLOCK: tl.constexpr,  # shape of the block of one loop iteration: see `Block`
):
    """Copy blocks of tiles, each from its source shard. Offsets are in elements."""
    for place in range(tl.program_id(0), BLOCK.number, tl.num_programs(0)):
        sender = receiver % 4 * 2 + receiver // 4
        copy_rows(
            shard_at(peers, sender, out, BLOCK),
            out,
            read=0,
            write=0,
            rows=1,
            columns=65536,
            read_row=0,
            write_row=0,
            block=tl.cast(place, tl.int32),
            BLOCK=BLOCK,
        )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(number=1, width=2, lanes=2, rows=1, columns=1024, largest=(1, 65536))
_HOST = Reshard(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers; the tensor is too large to move
