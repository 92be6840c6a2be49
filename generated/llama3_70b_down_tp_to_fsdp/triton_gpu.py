"""Reshards bfloat16[28672, 8192] over 8 devices: [{"model"}, {"data"}] -> [{"data", "model"}, {}].

Source: [{"model"}, {"data"}] on <["data"=2, "model"=4]>, shards of 7168 x 4096.
    d1(data, model)[k0, k1] -> t[model * 7168 + k0, data * 4096 + k1]
Target: [{"data", "model"}, {}] on <["data"=2, "model"=4]>, shards of 3584 x 8192.
    d2(data, model)[k0, k1] -> t[data * 14336 + model * 3584 + k0, k1]

Along dimension 0, source shards of 7168 meet target shards of 3584: one source shard for each
    target shard.
Along dimension 1, source shards of 4096 meet target shards of 8192: 2 source shards for each target
    shard.
Each tile has one holder, which sends it.
No device receives over 58720256 bytes or sends over 58720256, the least possible.
All devices together receive 411041792.

    device  before                         after
    0       [0, 7168) x [0, 4096)          [0, 3584) x [0, 8192)
            receives [0, 3584) x [4096, 8192) from 4
    1       [7168, 14336) x [0, 4096)      [3584, 7168) x [0, 8192)
            receives [3584, 7168) x [0, 4096) from 0, [3584, 7168) x [4096, 8192) from 4
    2       [14336, 21504) x [0, 4096)     [7168, 10752) x [0, 8192)
            receives [7168, 10752) x [0, 4096) from 1, [7168, 10752) x [4096, 8192) from 5
    3       [21504, 28672) x [0, 4096)     [10752, 14336) x [0, 8192)
            receives [10752, 14336) x [0, 4096) from 1, [10752, 14336) x [4096, 8192) from 5
    4       [0, 7168) x [4096, 8192)       [14336, 17920) x [0, 8192)
            receives [14336, 17920) x [0, 4096) from 2, [14336, 17920) x [4096, 8192) from 6
    5       [7168, 14336) x [4096, 8192)   [17920, 21504) x [0, 8192)
            receives [17920, 21504) x [0, 4096) from 2, [17920, 21504) x [4096, 8192) from 6
    6       [14336, 21504) x [4096, 8192)  [21504, 25088) x [0, 8192)
            receives [21504, 25088) x [0, 4096) from 3, [21504, 25088) x [4096, 8192) from 7
    7       [21504, 28672) x [4096, 8192)  [25088, 28672) x [0, 8192)
            receives [25088, 28672) x [0, 4096) from 3

Emitted by
    shardwright emit --mesh data=2,model=4 --shape 28672x8192 --dtype bfloat16 --source '[{"model"}, {"data"}]' --target '[{"data", "model"}, {}]' --backends pallas_tpu,triton_gpu,jax_xla --name llama3_70b_down_tp_to_fsdp
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

SHAPE = (28672, 8192)
DTYPE = "bfloat16"
SOURCE_MESH = TARGET_MESH = '<["data"=2, "model"=4]>'
SOURCE = '[{"model"}, {"data"}]'
TARGET = '[{"data", "model"}, {}]'
LOCAL_SOURCE_SHAPE = (7168, 4096)
LOCAL_TARGET_SHAPE = (3584, 8192)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "ef3960b3b2f47e46"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position % 4 * 7168
    lo1 = position // 4 * 4096
    return lo0, lo0 + 7168, lo1, lo1 + 4096


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position * 3584
    return lo0, lo0 + 3584, 0, 8192


def senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    return [a1 * 4 + receiver // 2 for a1 in range(2)]


def receivers(sender):
    """Return the positions that the parts of a source shard go to."""
    return range(sender % 4 * 2, sender % 4 * 2 + 2)


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
        # A target shard of 3584 meets one source shard of 7168.
        to0 = receiver * 3584
        a0 = to0 // 7168
        from0 = a0 * 7168
        # A target shard of 8192 meets 2 source shards of 4096.
        # Each device starts with a different one and ends with its own.
        a1 = (receiver // 4 + number + 1) % 2
        from1 = a1 * 4096
        sender = a1 * 4 + a0
        copy_rows(
            shard_at(peers, sender, out, BLOCK),
            out,
            read=(to0 - from0) * 4096,
            write=from1,
            rows=3584,
            columns=4096,
            read_row=4096,
            write_row=8192,
            block=tl.cast(block, tl.int32),
            BLOCK=BLOCK,
        )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(
    number=2, width=4, lanes=2, rows=1, columns=1024, largest=(3584, 4096), together=("source",)
)
_HOST = Reshard(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers; the tensor is too large to move
