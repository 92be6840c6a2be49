"""Reshards bfloat16[4096, 64, 128] over 8 devices: [{}, {"sp"}, {}] -> [{"sp"}, {}, {}].

Source: [{}, {"sp"}, {}] on <["sp"=8]>, shards of 4096 x 8 x 128.
    d1(sp)[k0, k1, k2] -> t[k0, sp * 8 + k1, k2]
Target: [{"sp"}, {}, {}] on <["sp"=8]>, shards of 512 x 64 x 128.
    d2(sp)[k0, k1, k2] -> t[sp * 512 + k0, k1, k2]

Along dimension 0, source shards of 4096 meet target shards of 512: one source shard for each target
    shard.
Along dimension 1, source shards of 8 meet target shards of 64: 8 source shards for each target
    shard.
Each tile has one holder, which sends it.
No device receives over 7340032 bytes or sends over 7340032, the least possible.
All devices together receive 58720256.

Ranges along dimensions 0, 1:
A device sends the intersection of its range before and the receiver's after.

    device  before                after                   receives
    0       [0, 4096) x [0, 8)    [0, 512) x [0, 64)      from 1, 2, 3, 4, 5, 6, 7
    1       [0, 4096) x [8, 16)   [512, 1024) x [0, 64)   from 0, 2, 3, 4, 5, 6, 7
    2       [0, 4096) x [16, 24)  [1024, 1536) x [0, 64)  from 0, 1, 3, 4, 5, 6, 7
    3       [0, 4096) x [24, 32)  [1536, 2048) x [0, 64)  from 0, 1, 2, 4, 5, 6, 7
    4       [0, 4096) x [32, 40)  [2048, 2560) x [0, 64)  from 0, 1, 2, 3, 5, 6, 7
    5       [0, 4096) x [40, 48)  [2560, 3072) x [0, 64)  from 0, 1, 2, 3, 4, 6, 7
    6       [0, 4096) x [48, 56)  [3072, 3584) x [0, 64)  from 0, 1, 2, 3, 4, 5, 7
    7       [0, 4096) x [56, 64)  [3584, 4096) x [0, 64)  from 0, 1, 2, 3, 4, 5, 6

Emitted by
    shardwright emit --mesh sp=8 --shape 4096x64x128 --dtype bfloat16 --source '[{"sp"}, {}, {}]' --target '[{}, {"sp"}, {}]' --backends pallas_tpu,triton_gpu,jax_xla --gradient --name attention_seq_to_heads  # triton_gpu_backward.py, the backward
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
from .._support.torch_gradient import Gradient
from .._support.triton_rows import Tiles, copy_rows, shard_at

require("triton_gpu", "c4a32583165833e8", __name__)
__all__ = ["reshard", "reshard_local", "source_shape", "target_shape"]

SHAPE = (4096, 64, 128)
DTYPE = "bfloat16"
SOURCE_MESH = TARGET_MESH = '<["sp"=8]>'
SOURCE = '[{}, {"sp"}, {}]'
TARGET = '[{"sp"}, {}, {}]'
LOCAL_SOURCE_SHAPE = (4096, 8, 128)
LOCAL_TARGET_SHAPE = (512, 64, 128)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "433f61bb5df6aeab"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo1 = position * 8
    return 0, 4096, lo1, lo1 + 8, 0, 128


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position * 512
    return lo0, lo0 + 512, 0, 64, 0, 128


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
        # A target shard of 512 meets one source shard of 4096.
        to0 = receiver * 512
        # A target shard of 64 meets 8 source shards of 8.
        # Each device starts with a different one and ends with its own.
        a1 = (number + receiver + 1) % 8
        from1 = a1 * 8
        sender = a1
        copy_rows(
            shard_at(peers, sender, out, BLOCK),
            out,
            read=to0 * 1024,
            write=from1 * 128,
            rows=512,
            columns=1024,
            read_row=1024,
            write_row=8192,
            block=tl.cast(block, tl.int32),
            BLOCK=BLOCK,
        )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(
    number=8, width=4, lanes=2, rows=4, columns=256, largest=(512, 1024), together=("source",)
)
_HOST = Reshard(
    SHAPE,
    DTYPE,
    PLAN,
    f"{SOURCE} -> {TARGET}",
    EXCHANGE,
    pull_kernel,
    TILES,
    gradient=Gradient(__package__, "triton_gpu"),
)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers; the tensor is too large to move
