"""Reshards bfloat16[256, 2048, 1792] over 8 devices: [{"ep", "tp"}, {}, {}] -> [{"ep"}, {},
    {"tp"}].

Source: [{"ep", "tp"}, {}, {}] on <["ep"=4, "tp"=2]>, shards of 32 x 2048 x 1792.
    d1(ep, tp)[k0, k1, k2] -> t[ep * 64 + tp * 32 + k0, k1, k2]
Target: [{"ep"}, {}, {"tp"}] on <["ep"=4, "tp"=2]>, shards of 64 x 2048 x 896.
    d2(ep, tp)[k0, k1, k2] -> t[ep * 64 + k0, k1, tp * 896 + k2]

Along dimension 0, source shards of 32 meet target shards of 64: 2 source shards for each target
    shard.
Along dimension 2, source shards of 1792 meet target shards of 896: one source shard for each target
    shard.
Each tile has one holder, which sends it.
No device receives over 117440512 bytes or sends over 117440512, the least possible.
All devices together receive 939524096.

Ranges along dimensions 0, 2:

    device  before                  after                     receives
    0       [0, 32) x [0, 1792)     [0, 64) x [0, 896)        [32, 64) x [0, 896) from 1
    1       [32, 64) x [0, 1792)    [0, 64) x [896, 1792)     [0, 32) x [896, 1792) from 0
    2       [64, 96) x [0, 1792)    [64, 128) x [0, 896)      [96, 128) x [0, 896) from 3
    3       [96, 128) x [0, 1792)   [64, 128) x [896, 1792)   [64, 96) x [896, 1792) from 2
    4       [128, 160) x [0, 1792)  [128, 192) x [0, 896)     [160, 192) x [0, 896) from 5
    5       [160, 192) x [0, 1792)  [128, 192) x [896, 1792)  [128, 160) x [896, 1792) from 4
    6       [192, 224) x [0, 1792)  [192, 256) x [0, 896)     [224, 256) x [0, 896) from 7
    7       [224, 256) x [0, 1792)  [192, 256) x [896, 1792)  [192, 224) x [896, 1792) from 6

Emitted by
    shardwright emit --mesh ep=4,tp=2 --shape 256x2048x1792 --dtype bfloat16 --source '[{"ep", "tp"}, {}, {}]' --target '[{"ep"}, {}, {"tp"}]' --backends pallas_tpu,triton_gpu,jax_xla --name moe_experts_ep_to_tp
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

SHAPE = (256, 2048, 1792)
DTYPE = "bfloat16"
SOURCE_MESH = TARGET_MESH = '<["ep"=4, "tp"=2]>'
SOURCE = '[{"ep", "tp"}, {}, {}]'
TARGET = '[{"ep"}, {}, {"tp"}]'
LOCAL_SOURCE_SHAPE = (32, 2048, 1792)
LOCAL_TARGET_SHAPE = (64, 2048, 896)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "237b58d872a475da"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position * 32
    return lo0, lo0 + 32, 0, 2048, 0, 1792


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position // 2 * 64
    lo2 = position % 2 * 896
    return lo0, lo0 + 64, 0, 2048, lo2, lo2 + 896


def senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    return range(receiver // 2 * 2, receiver // 2 * 2 + 2)


def receivers(sender):
    """Return the positions that the parts of a source shard go to."""
    return [sender // 2 * 2 + b2 for b2 in range(2)]


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
        # A target shard of 64 meets 2 source shards of 32.
        # Each device starts with a different one and ends with its own.
        to0 = receiver // 2 * 64
        a0 = to0 // 32 + (number + receiver + 1) % 2
        from0 = a0 * 32
        # A target shard of 896 meets one source shard of 1792.
        to2 = receiver % 2 * 896
        sender = a0
        copy_rows(
            shard_at(peers, sender, out, BLOCK),
            out,
            read=to2,
            write=(from0 * 2048 - to0 * 2048) * 896,
            rows=65536,
            columns=896,
            read_row=1792,
            write_row=896,
            block=tl.cast(block, tl.int32),
            BLOCK=BLOCK,
        )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(
    number=2, width=4, lanes=2, rows=4, columns=256, largest=(65536, 896), together=("target",)
)
_HOST = Reshard(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers; the tensor is too large to move
