"""Reshards bfloat16[8192, 8192] over 8 devices: [{"data", "model"}, {}] -> [{}, {"model"}].

Source: [{"data", "model"}, {}] on <["data"=2, "model"=4]>, shards of 1024 x 8192.
    d1(data, model)[k0, k1] -> t[data * 4096 + model * 1024 + k0, k1]
Target: [{}, {"model"}] on <["data"=2, "model"=4]>, shards of 8192 x 2048.
    d2(data, model)[k0, k1] -> t[k0, model * 2048 + k1]

Along dimension 0, source shards of 1024 meet target shards of 8192: 8 source shards for each target
    shard.
Along dimension 1, source shards of 8192 meet target shards of 2048: one source shard for each
    target shard.
Each tile has one holder, which sends it.
No device receives over 29360128 bytes or sends over 29360128, the least possible.
All devices together receive 234881024.

A device sends the intersection of its range before and the receiver's after.

    device  before                    after                     receives
    0       [0, 1024) x [0, 8192)     [0, 8192) x [0, 2048)     from 1, 2, 3, 4, 5, 6, 7
    1       [1024, 2048) x [0, 8192)  [0, 8192) x [2048, 4096)  from 0, 2, 3, 4, 5, 6, 7
    2       [2048, 3072) x [0, 8192)  [0, 8192) x [4096, 6144)  from 0, 1, 3, 4, 5, 6, 7
    3       [3072, 4096) x [0, 8192)  [0, 8192) x [6144, 8192)  from 0, 1, 2, 4, 5, 6, 7
    4       [4096, 5120) x [0, 8192)  [0, 8192) x [0, 2048)     from 0, 1, 2, 3, 5, 6, 7
    5       [5120, 6144) x [0, 8192)  [0, 8192) x [2048, 4096)  from 0, 1, 2, 3, 4, 6, 7
    6       [6144, 7168) x [0, 8192)  [0, 8192) x [4096, 6144)  from 0, 1, 2, 3, 4, 5, 7
    7       [7168, 8192) x [0, 8192)  [0, 8192) x [6144, 8192)  from 0, 1, 2, 3, 4, 5, 6

Emitted by
    shardwright emit --mesh data=2,model=4 --shape 8192x8192 --dtype bfloat16 --source '[{"data", "model"}, {}]' --target '[{}, {"model"}]' --backends pallas_tpu,triton_gpu,jax_xla --name llama3_70b_wq_fsdp_to_tp
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

SHAPE = (8192, 8192)
DTYPE = "bfloat16"
SOURCE_MESH = TARGET_MESH = '<["data"=2, "model"=4]>'
SOURCE = '[{"data", "model"}, {}]'
TARGET = '[{}, {"model"}]'
LOCAL_SOURCE_SHAPE = (1024, 8192)
LOCAL_TARGET_SHAPE = (8192, 2048)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "9b2f2d590602314f"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position * 1024
    return lo0, lo0 + 1024, 0, 8192


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo1 = position % 4 * 2048
    return 0, 8192, lo1, lo1 + 2048


def senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    return range(8)


def receivers(sender):
    """Return the positions that the parts of a source shard go to."""
    return [replica * 4 + b1 for b1 in range(4) for replica in range(2)]


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
        # A target shard of 8192 meets 8 source shards of 1024.
        # Each device starts with a different one and ends with its own.
        a0 = (number + receiver + 1) % 8
        from0 = a0 * 1024
        # A target shard of 2048 meets one source shard of 8192.
        to1 = receiver % 4 * 2048
        sender = a0
        copy_rows(
            shard_at(peers, sender, out, BLOCK),
            out,
            read=to1,
            write=from0 * 2048,
            rows=1024,
            columns=2048,
            read_row=8192,
            write_row=2048,
            block=tl.cast(block, tl.int32),
            BLOCK=BLOCK,
        )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(
    number=8, width=4, lanes=2, rows=2, columns=512, largest=(1024, 2048), together=("target",)
)
_HOST = Reshard(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers; the tensor is too large to move
