"""Reshards bfloat16[32, 2048, 8, 128] over 4 devices: [{}, {}, {"a", "b"}, {}] -> [{"b"}, {},
    {"a"}, {}].

Source: [{}, {}, {"a", "b"}, {}] on <["a"=2, "b"=2]>, shards of 32 x 2048 x 2 x 128.
    d1(a, b)[k0, k1, k2, k3] -> t[k0, k1, a * 4 + b * 2 + k2, k3]
Target: [{"b"}, {}, {"a"}, {}] on <["a"=2, "b"=2]>, shards of 16 x 2048 x 4 x 128.
    d2(a, b)[k0, k1, k2, k3] -> t[b * 16 + k0, k1, a * 4 + k2, k3]

Along dimension 0, source shards of 32 meet target shards of 16: one source shard for each target
    shard.
Along dimension 2, source shards of 2 meet target shards of 4: 2 source shards for each target
    shard.
Each tile has one holder, which sends it.
No device receives over 16777216 bytes or sends over 16777216, the least possible.
All devices together receive 67108864.

Ranges along dimensions 0, 2:

    device  before            after              receives
    0       [0, 32) x [0, 2)  [0, 16) x [0, 4)   [0, 16) x [2, 4) from 1
    1       [0, 32) x [2, 4)  [16, 32) x [0, 4)  [16, 32) x [0, 2) from 0
    2       [0, 32) x [4, 6)  [0, 16) x [4, 8)   [0, 16) x [6, 8) from 3
    3       [0, 32) x [6, 8)  [16, 32) x [4, 8)  [16, 32) x [4, 6) from 2

Emitted by
    shardwright emit --mesh a=2,b=2 --shape 32x2048x8x128 --dtype bfloat16 --source '[{}, {}, {"a", "b"}, {}]' --target '[{"b"}, {}, {"a"}, {}]' --backends pallas_tpu,triton_gpu,jax_xla --name kv_cache_tp4_to_tp2
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

SHAPE = (32, 2048, 8, 128)
DTYPE = "bfloat16"
SOURCE_MESH = TARGET_MESH = '<["a"=2, "b"=2]>'
SOURCE = '[{}, {}, {"a", "b"}, {}]'
TARGET = '[{"b"}, {}, {"a"}, {}]'
LOCAL_SOURCE_SHAPE = (32, 2048, 2, 128)
LOCAL_TARGET_SHAPE = (16, 2048, 4, 128)
SOURCE_IDS = TARGET_IDS = range(4)  # by mesh position
PLAN = "0b6fb016d4de1e7a"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo2 = position * 2
    return 0, 32, 0, 2048, lo2, lo2 + 2, 0, 128


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position % 2 * 16
    lo2 = position // 2 * 4
    return lo0, lo0 + 16, 0, 2048, lo2, lo2 + 4, 0, 128


def senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    return range(receiver // 2 * 2, receiver // 2 * 2 + 2)


def receivers(sender):
    """Return the positions that the parts of a source shard go to."""
    return [sender // 2 * 2 + b0 for b0 in range(2)]


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
        # A target shard of 16 meets one source shard of 32.
        to0 = receiver % 2 * 16
        # A target shard of 4 meets 2 source shards of 2.
        # Each device starts with a different one and ends with its own.
        to2 = receiver // 2 * 4
        a2 = to2 // 2 + (number + receiver + 1) % 2
        from2 = a2 * 2
        sender = a2
        copy_rows(
            shard_at(peers, sender, out, BLOCK),
            out,
            read=to0 * 2048 * 256,
            write=from2 * 128 - to2 * 128,
            rows=32768,
            columns=256,
            read_row=256,
            write_row=512,
            block=tl.cast(block, tl.int32),
            BLOCK=BLOCK,
        )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(
    number=2, width=4, lanes=2, rows=16, columns=64, largest=(32768, 256), together=("source",)
)
_HOST = Reshard(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers; the tensor is too large to move
