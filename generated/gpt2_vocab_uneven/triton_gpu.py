"""Reshards float32[50257, 768] over 8 devices: [{"x", "y"}, {}] -> [{"y"}, {"x"}].

Source: [{"x", "y"}, {}] on <["x"=2, "y"=4]>, shards of 6283 x 768.
    d1(x, y)[k0, k1] -> t[x * 25132 + y * 6283 + k0, k1]
    The last shards along dimension 0 are short or empty, and are stored without padding: device 7
        has 6276 x 768.
Target: [{"y"}, {"x"}] on <["x"=2, "y"=4]>, shards of 12565 x 384.
    d2(x, y)[k0, k1] -> t[y * 12565 + k0, x * 384 + k1]
    The last shards along dimension 0 are short or empty, and are stored without padding: device 3
        has 12562 x 384.

Along dimension 0, source shards of 6283 meet target shards of 12565: up to 3 source shards for each
    target shard.
Along dimension 1, source shards of 768 meet target shards of 384: one source shard for each target
    shard.
Each tile has one holder, which sends it.
No device receives over 19299840 bytes or sends over 19301376, the least possible.
All devices together receive 135097344.

    device  before                     after
    0       [0, 6283) x [0, 768)       [0, 12565) x [0, 384)
            receives [6283, 12565) x [0, 384) from 1
    1       [6283, 12566) x [0, 768)   [12565, 25130) x [0, 384)
            receives [12566, 18849) x [0, 384) from 2, [18849, 25130) x [0, 384) from 3
    2       [12566, 18849) x [0, 768)  [25130, 37695) x [0, 384)
            receives [25130, 25132) x [0, 384) from 3, [25132, 31415) x [0, 384) from 4,
            [31415, 37695) x [0, 384) from 5
    3       [18849, 25132) x [0, 768)  [37695, 50257) x [0, 384)
            receives [37695, 37698) x [0, 384) from 5, [37698, 43981) x [0, 384) from 6,
            [43981, 50257) x [0, 384) from 7
    4       [25132, 31415) x [0, 768)  [0, 12565) x [384, 768)
            receives [0, 6283) x [384, 768) from 0, [6283, 12565) x [384, 768) from 1
    5       [31415, 37698) x [0, 768)  [12565, 25130) x [384, 768)
            receives [12565, 12566) x [384, 768) from 1, [12566, 18849) x [384, 768) from 2,
            [18849, 25130) x [384, 768) from 3
    6       [37698, 43981) x [0, 768)  [25130, 37695) x [384, 768)
            receives [25130, 25132) x [384, 768) from 3, [25132, 31415) x [384, 768) from 4,
            [31415, 37695) x [384, 768) from 5
    7       [43981, 50257) x [0, 768)  [37695, 50257) x [384, 768)
            receives [37695, 37698) x [384, 768) from 5, [37698, 43981) x [384, 768) from 6

Emitted by
    shardwright emit --mesh x=2,y=4 --shape 50257x768 --dtype float32 --source '[{"x", "y"}, {}]' --target '[{"y"}, {"x"}]' --backends pallas_tpu,triton_gpu,jax_xla --name gpt2_vocab_uneven
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

SHAPE = (50257, 768)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=4]>'
SOURCE = '[{"x", "y"}, {}]'
TARGET = '[{"y"}, {"x"}]'
LOCAL_SOURCE_SHAPE = (6283, 768)
LOCAL_TARGET_SHAPE = (12565, 384)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "7f4b2ea0e22afa50"  # hash of the plan: equal on all processes that exchange


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position * 6283
    return lo0, min(lo0 + 6283, 50257), 0, 768


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position % 4 * 12565
    lo1 = position // 4 * 384
    return lo0, min(lo0 + 12565, 50257), lo1, lo1 + 384


def senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    first0 = receiver % 4 * 12565 // 6283
    last0 = (min(receiver % 4 * 12565 + 12565, 50257) - 1) // 6283
    return range(first0, last0 + 1)


def receivers(sender):
    """Return the positions that the parts of a source shard go to."""
    first0 = sender * 6283 // 12565
    last0 = (min(sender * 6283 + 6283, 50257) - 1) // 12565
    return [b1 * 4 + b0 for b0 in range(first0, last0 + 1) for b1 in range(2)]


@triton.jit(do_not_specialize=["receiver"])
def pull_kernel(
    peers,  # int64 [source positions]: the address of every source shard
    out,  # the target shard, viewed in the units of BLOCK
    receiver,  # position of this device in the target mesh
    BLOCK: tl.constexpr,  # shape of the block of one loop iteration: see `Block`
):
    """Copy blocks of tiles, each from its source shard. Offsets are in elements."""
    for place in range(tl.program_id(0), BLOCK.number, tl.num_programs(0)):
        number, block = place % 3, place // 3
        # A target shard of 12565 meets up to 3 source shards of 6283.
        # Each device starts with a different one.
        to0 = receiver % 4 * 12565
        a0 = to0 // 6283 + (number + receiver) % 3
        from0 = a0 * 6283
        low0 = max(from0, to0)
        high0 = min(from0 + 6283, min(to0 + 12565, 50257))
        width0 = high0 - low0
        # A target shard of 384 meets one source shard of 768.
        to1 = receiver // 4 * 384
        sender = a0
        if low0 < high0:
            copy_rows(
                shard_at(peers, sender, out, BLOCK),
                out,
                read=(low0 - from0) * 768 + to1,
                write=(low0 - to0) * 384,
                rows=width0,
                columns=384,
                read_row=768,
                write_row=384,
                block=tl.cast(block, tl.int32),
                BLOCK=BLOCK,
            )


EXCHANGE = Exchange(Side(SOURCE_IDS, source_box), Side(TARGET_IDS, target_box), senders, receivers)
TILES = Tiles(
    number=3, width=2, lanes=2, rows=16, columns=64, largest=(6283, 384), together=("target",)
)
_HOST = Reshard(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {TARGET}", EXCHANGE, pull_kernel, TILES)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers; the tensor is too large to move
