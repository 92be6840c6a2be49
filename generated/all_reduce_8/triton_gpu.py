"""Reshards bfloat16[2048, 4096] over 8 devices: [{}, {}], unreduced={"tp"} -> [{}, {}].

Source: [{}, {}], unreduced={"tp"} on <["tp"=8]>, shards of 2048 x 4096.
    d1(tp)[k0, k1] -> t[k0, k1]
Target: [{}, {}] on <["tp"=8]>, shards of 2048 x 4096.
    d2(tp)[k0, k1] -> t[k0, k1]

A target shard has 8 replicas, too large for each to reduce all of it: each device reduces a part,
    [{"tp"}, {}], of 256 x 4096; then parts are copied.
A value has 8 terms, along "tp". A receiver adds them up in the order of their coordinates, as
    float32 that is rounded once.
No device receives over 29360128 bytes or sends over 29360128, the least possible.
All devices together receive 234881024.

Ranges along dimension 0:

    device  before     part          after
    0       [0, 2048)  [0, 256)      [0, 2048)
    1       [0, 2048)  [256, 512)    [0, 2048)
    2       [0, 2048)  [512, 768)    [0, 2048)
    3       [0, 2048)  [768, 1024)   [0, 2048)
    4       [0, 2048)  [1024, 1280)  [0, 2048)
    5       [0, 2048)  [1280, 1536)  [0, 2048)
    6       [0, 2048)  [1536, 1792)  [0, 2048)
    7       [0, 2048)  [1792, 2048)  [0, 2048)

Emitted by
    shardwright emit --mesh tp=8 --shape 2048x4096 --dtype bfloat16 --source '[{}, {}], unreduced={"tp"}' --target '[{}, {}]' --backends triton_gpu --name all_reduce_8
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
from .._support.torch_phased import Phased
from .._support.torch_reduce import Reduction
from .._support.triton_rows import BOTH, Tiles, copy_rows, read_once, rows_at, shard_at

require("triton_gpu", "c4a32583165833e8", __name__)
__all__ = ["reshard", "reshard_local", "source_shape", "target_shape"]

SHAPE = (2048, 4096)
DTYPE = "bfloat16"
SOURCE_MESH = TARGET_MESH = '<["tp"=8]>'
SOURCE = '[{}, {}], unreduced={"tp"}'
TARGET = "[{}, {}]"
LOCAL_SOURCE_SHAPE = LOCAL_TARGET_SHAPE = (2048, 4096)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "e34690779cfc5553"  # hash of the plan: equal on all processes that exchange
PARTS = '[{"tp"}, {}]'  # shards of sums, before replication


def source_box(position):
    """Ranges (low, high) of terms, then of the tensor, of the source shard at a position."""
    return position, position + 1, 0, 2048, 0, 4096


def part_box(position):
    """Tensor range (low, high), per dimension, of the part at a position."""
    lo0 = position * 256
    return lo0, lo0 + 256, 0, 4096


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    return 0, 2048, 0, 4096


def senders(receiver):
    """Return the positions that the terms of a part come from."""
    return range(8)


def receivers(sender):
    """Return the positions that the parts of a source shard go to."""
    return range(8)


@triton.jit(do_not_specialize=["receiver"])
def pull_kernel(
    peers,  # int64 [source positions]: the address of every source shard
    out,  # the part, viewed in the units of BLOCK
    receiver,  # position of this device in the target mesh
    BLOCK: tl.constexpr,  # shape of the block of one loop iteration: see `Block`
):
    """Add up blocks of tiles over all terms. Offsets are in elements."""
    for place in range(tl.program_id(0), BLOCK.number, tl.num_programs(0)):
        # A target shard of 256 meets one source shard of 2048.
        to0 = receiver * 256
        read, write, inside = rows_at(
            read=to0 * 4096,
            write=0,
            rows=1,
            columns=1048576,
            read_row=0,
            write_row=0,
            block=tl.cast(place, tl.int32),
            BLOCK=BLOCK,
        )
        total = tl.full([BLOCK.rows, BLOCK.columns], 0, tl.float32)
        for term in tl.static_range(8):
            sender = term
            shard = shard_at(peers, sender, out, BLOCK)
            loaded = read_once(shard + read, inside).to(tl.float32)
            total += loaded
        tl.store(out + write, total.to(tl.bfloat16), mask=inside)


def part_senders(receiver):
    """Return the positions that the parts of a target shard come from."""
    return range(8)


def part_receivers(sender):
    """Return the positions that a part go to."""
    return range(8)


@triton.jit(do_not_specialize=["receiver"])
def gather_kernel(
    peers,  # int64 [source positions]: the address of every part
    out,  # the target shard, viewed in the units of BLOCK
    receiver,  # position of this device in the target mesh
    BLOCK: tl.constexpr,  # shape of the block of one loop iteration: see `Block`
):
    """Copy blocks of tiles, each from its source shard. Offsets are in elements."""
    for place in range(tl.program_id(0), BLOCK.number, tl.num_programs(0)):
        number, block = place % 8, place // 8
        # A target shard of 2048 meets 8 source shards of 256.
        # Each device starts with a different one and ends with its own.
        a0 = (number + receiver + 1) % 8
        from0 = a0 * 256
        sender = a0
        copy_rows(
            shard_at(peers, sender, out, BLOCK),
            out,
            read=0,
            write=from0 * 4096,
            rows=1,
            columns=1048576,
            read_row=0,
            write_row=0,
            block=tl.cast(block, tl.int32),
            BLOCK=BLOCK,
        )


EXCHANGE = Exchange(
    Side(SOURCE_IDS, source_box),
    Side(TARGET_IDS, lambda position: (0, 8, *part_box(position))),
    senders,
    receivers,
    hidden=(8,),
)
TILES = Tiles(number=1, width=1, lanes=8, rows=1, columns=2048, largest=(1, 1048576), together=BOTH)
GATHER = Exchange(
    Side(TARGET_IDS, part_box), Side(TARGET_IDS, target_box), part_senders, part_receivers
)
GATHER_TILES = Tiles(
    number=8, width=4, lanes=2, rows=1, columns=1024, largest=(1, 1048576), together=BOTH
)
_REDUCE = Reduction(SHAPE, DTYPE, PLAN, f"{SOURCE} -> {PARTS}", EXCHANGE, pull_kernel, TILES)
_GATHER = Reshard(SHAPE, DTYPE, PLAN, f"{PARTS} -> {TARGET}", GATHER, gather_kernel, GATHER_TILES)
_HOST = Phased(_REDUCE, _GATHER)
reshard, reshard_local = _HOST.reshard, _HOST.reshard_local
source_shape, target_shape = _HOST.source_shape, _HOST.target_shape


def __getattr__(name):
    from .._support.doors import absent  # only for a name that this module lacks

    raise absent(__name__, name)


if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")  # checks boxes and peers; the tensor is too large to move
