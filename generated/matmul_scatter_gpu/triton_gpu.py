"""Multiplies bfloat16[4096, 16384] by [16384, 8192] over 8 devices.

C[i, k] = sum over j of A[i, j] * B[j, k], on <["i"=8]>.
lhs: [{}, {"i"}], shards of 4096 x 2048.
rhs: [{"i"}, {}], shards of 2048 x 8192.
out: [{"i"}, {}], shards of 512 x 8192.

Along "i", case 3: lhs is split along its contracting dimension j, rhs is split along its
    contracting dimension j.

Each device multiplies 4096 x 2048 by 2048 x 8192, 137438953472 flops, in tiles of 128 x 128, in
    steps of 64 along j.
A device sends tiles of other devices' results as soon as they are computed, those of the farthest
    device first: 58720256 bytes to the busiest device.
The busiest device receives 58720256 bytes.
A device sums its products in float32.
Partial sums of devices are bfloat16; the owner of a result adds them in float32, in the order of
    their ranges of j, and rounds once.

Every rank of a torch group calls `c = matmul(a, b)` with its own shards, all calls of a group on
one stream; `synchronize()` waits, and raises if a rank was missing. Until it or the next call
raises, the result of such a call is undefined: kernels give up after `_HOST.polls` polls, which
should take minutes. It needs GPUs of one host, with torch's symmetric memory of the backend CUDA.
On a CPU it runs in Triton's interpreter (TRITON_INTERPRET=1), which truncates float32 to bfloat16
where GPUs round to nearest: results may differ from theirs in the last bit. Its first call
allocates 134,217,856 bytes of memory that peers access; they remain as long as the group. Such
kernels have run on one H200 and in Triton's interpreter, not on several GPUs.

    device  lhs                         rhs                         out
    0       [0, 4096) x [0, 2048)       [0, 2048) x [0, 8192)       [0, 512) x [0, 8192)
    1       [0, 4096) x [2048, 4096)    [2048, 4096) x [0, 8192)    [512, 1024) x [0, 8192)
    2       [0, 4096) x [4096, 6144)    [4096, 6144) x [0, 8192)    [1024, 1536) x [0, 8192)
    3       [0, 4096) x [6144, 8192)    [6144, 8192) x [0, 8192)    [1536, 2048) x [0, 8192)
    4       [0, 4096) x [8192, 10240)   [8192, 10240) x [0, 8192)   [2048, 2560) x [0, 8192)
    5       [0, 4096) x [10240, 12288)  [10240, 12288) x [0, 8192)  [2560, 3072) x [0, 8192)
    6       [0, 4096) x [12288, 14336)  [12288, 14336) x [0, 8192)  [3072, 3584) x [0, 8192)
    7       [0, 4096) x [14336, 16384)  [14336, 16384) x [0, 8192)  [3584, 4096) x [0, 8192)

Emitted by
    shardwright emit manifest.json --name matmul_scatter_gpu  # in the parent folder
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.triton_gpu` in the folder that contains FOLDER")
if __name__ == "__main__":
    os.environ.setdefault("TRITON_INTERPRET", "1")

import triton
import triton.language as tl

from .._support import require
from .._support.torch_matmul import TritonMatmul

require("triton_gpu", "c4a32583165833e8", __name__)

__all__ = ["matmul", "matmul_local", "synchronize"]

LHS_SHAPE = (4096, 16384)
RHS_SHAPE = (16384, 8192)
OUT_SHAPE = (4096, 8192)
DTYPE = "bfloat16"
OUT_DTYPE = "bfloat16"
MESH = '<["i"=8]>'
LHS = '[{}, {"i"}]'
RHS = '[{"i"}, {}]'
OUT = '[{"i"}, {}]'
IDS = range(8)  # by mesh position
WIRE_BYTES = 58720256


def lhs_box(position):
    """Tensor range (low, high), per dimension, of the lhs shard at a position."""
    lo1 = position * 2048
    return 0, 4096, lo1, lo1 + 2048


def rhs_box(position):
    """Tensor range (low, high), per dimension, of the rhs shard at a position."""
    lo0 = position * 2048
    return lo0, lo0 + 2048, 0, 8192


def out_box(position):
    """Tensor range (low, high), per dimension, of the out shard at a position."""
    lo0 = position * 512
    return lo0, lo0 + 512, 0, 8192


def product_box(position):
    """Tensor range (low, high), per dimension, of the product shard at a position."""
    lo1 = position * 2048
    return 0, 4096, lo1, lo1 + 2048, 0, 8192


INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
HAS_POLL = tl.constexpr(hasattr(tl, "atomic_poll"))


# An epoch in device memory numbers the calls, so that replays of a captured graph count too.
# Kernels wait for the number of a call, or for a multiple of it: no counter is ever reset. Memory
# that peers read or write has two slots, used in turn: a device begins a call only after its
# partners have begun the previous one, and so ended the one before that. `state`, int32 [2], has
# the number of the call, and the code of a wait that timed out after `polls` polls; later waits
# then return at once. Codes, from which messages are made: 1 + position, the previous call of the
# device at that position; 9 + position, its operands; 17 + position, its terms of the result;
# 25 + number, a part of an operand.
@triton.jit
def wait(flag, wanted, state, polls, code):
    """Wait until a flag equals a value; acquire earlier writes, including those of other GPUs."""
    left, wanted = tl.where(tl.load(state + 1) == 0, polls, 0), tl.cast(wanted, tl.int32)
    seen = tl.atomic_add(flag, 0, sem="acquire", scope="sys")
    while (left > 0) & (seen != wanted):
        if HAS_POLL:  # sleeps at most a microsecond; acquires nothing after a time-out
            tl.atomic_poll(flag, wanted, sem="acquire", scope="sys", timeout_ns=1000)
        seen = tl.atomic_add(flag, 0, sem="acquire", scope="sys")
        left -= 1
    if seen != wanted:
        tl.atomic_cas(state + 1, 0, tl.cast(code, tl.int32))


@triton.jit
def count(flag):
    """Count this program, and release its stores, once all of its threads have made them."""
    tl.debug_barrier()
    tl.atomic_add(flag, 1, sem="release", scope="sys")


@triton.jit(do_not_specialize=["partners", "polls"])
def offer(
    flags,  # int32 [2, devices]: the last call that each device has begun, by the call's parity
    names,  # int64 [partners]: the positions of this device and its partners
    state,
    partners,
    polls,
):
    """Wait until all partners have begun the previous call, and so ended the one before that, whose
    slot this call reuses. Then copy the data that partners read into that slot."""
    epoch = tl.load(state) + 1
    before = flags + (epoch - 1 & 1) * 8
    for number in range(partners):
        name = tl.load(names + number)
        wait(before + name, epoch - 1, state, polls, 1 + name)


@triton.jit(do_not_specialize=["partners"])
def announce(
    places,  # int64 [partners]: the address of this device's flags in each partner's memory
    state,
    partners,
):
    """Begin a call: signal all partners. Launched as one program."""
    epoch = tl.load(state) + 1
    tl.store(state, epoch)
    tl.debug_barrier()
    for number in range(partners):
        place = tl.load(places + number).to(tl.pointer_type(tl.int32))
        tl.atomic_xchg(place + (epoch & 1) * 8, epoch, sem="release", scope="sys")


@triton.jit
def plus(total, x, y):
    """Add the product of two blocks to a sum."""
    if INTERPRETED:  # the interpreter would multiply the bits of bfloat16
        x, y = x.to(tl.float32), y.to(tl.float32)
    return tl.dot(x, y, total, input_precision="ieee", out_dtype=tl.float32)


@triton.jit
def product(total, a, b, a_at, b_at, across, rows, start, depth, a_row, b_row):
    """Add the product of rows of a and columns of b over `depth` elements of j to a sum."""
    row, column = tl.arange(0, 128)[:, None], tl.arange(0, 128)[None, :]
    along = tl.arange(0, 64)
    # Rows beyond the last repeat it: they are multiplied but not stored.
    a += a_at * a_row + tl.minimum(row, rows - 1) * a_row + start + along[None, :]
    b += (b_at + start) * b_row + across + column + along[:, None] * b_row
    for _ in tl.range(0, depth, 64):
        x = tl.load(a)
        y = tl.load(b)
        total = plus(total, x, y)
        a += 64
        b += 64 * b_row
    return total


@triton.jit
def fence(number):
    """Make acquired data visible to TMA, which reads memory through another proxy."""
    if not INTERPRETED:
        code: tl.constexpr = "fence.proxy.async.global; mov.u32 $0, $1;"
        tl.inline_asm_elementwise(code, "=r,r", [number], tl.int32, is_pure=False, pack=1)


@triton.jit
def described_product(total, a, b, a_at, b_at, across, start, depth):
    """Add the product of blocks over `depth` elements of j to a sum. TMA fills with zeros beyond
    an operand."""
    for along in tl.range(start, start + depth, 64):
        total = plus(total, a.load([a_at, along]), b.load([b_at + along, across]))
    return total


@triton.jit(do_not_specialize=["number", "segment_count", "a_row", "b_row", "pullers", "polls"])
def multiply(
    a,  # operands, or their descriptors for TMA
    b,
    tiles,  # int64 [number, 10], a row for each tile; columns: 0, 1, numbers of rows and columns;
    # 2, 3, the first rows of a and b; 4, the first column of b; 5, the first row in `segments`;
    # 6, 7, the first row in `owners` and the number of rows; 8, 9, row and column in the region
    segments,  # int64 [.., 4]: a segment is a range of j whose operands arrive together. Its start
    # and end, and the numbers of the parts of lhs and of rhs, -1 for local data
    owners,  # int64 [.., 3]: a region is a part of the product that goes to the same owners. The
    # position of an owner, the offset of the region there, and the row stride there
    state,
    places,  # int64 [devices, 2]: where this device's terms go, and are counted
    number,
    segment_count,  # number of segments of a tile
    a_row,  # elements of a row
    b_row,
    TMA: tl.constexpr,
):
    """Multiply tile after tile, each once its operands have arrived."""
    epoch = tl.load(state)
    a_row = tl.multiple_of(tl.cast(a_row, tl.int64), 8)
    b_row = tl.multiple_of(tl.cast(b_row, tl.int64), 8)
    row, column = tl.arange(0, 128)[:, None], tl.arange(0, 128)[None, :]
    for turn in tl.range(tl.program_id(0), number, tl.num_programs(0)):
        tile = tiles + tl.cast(turn, tl.int64) * 10
        rows, columns = tl.load(tile).to(tl.int32), tl.load(tile + 1).to(tl.int32)
        columns = tl.multiple_of(columns, 8)
        a_at, b_at = tl.load(tile + 2), tl.load(tile + 3)
        across = tl.multiple_of(tl.load(tile + 4), 8)
        total = tl.full((128, 128), 0, tl.float32)
        segment = segments + tl.load(tile + 5) * 4
        for _ in range(segment_count):
            start = tl.multiple_of(tl.load(segment), 8)
            depth = tl.multiple_of((tl.load(segment + 1) - start).to(tl.int32), 8)
            if TMA:
                total = described_product(
                    total, a, b, a_at.to(tl.int32), b_at.to(tl.int32), across.to(tl.int32),
                    start.to(tl.int32), depth,
                )  # fmt: skip
            else:
                total = product(
                    total, a, b, a_at, b_at, across, rows, start, depth, a_row, b_row
                )  # fmt: skip
            segment += 4
        inside = (row < rows) & (column < columns)
        owner = owners + tl.load(tile + 6) * 3
        for _ in range(tl.load(tile + 7)):
            to = places + 2 * tl.load(owner)
            c = tl.multiple_of(tl.load(to).to(tl.pointer_type(tl.bfloat16)), 16)
            c += tl.cast(epoch & 1, tl.int64) * 33554432
            apart = tl.multiple_of(tl.load(owner + 2), 8)
            first = tl.multiple_of(tl.load(owner + 1), 8) + tl.load(tile + 8) * apart
            first += tl.multiple_of(tl.load(tile + 9), 8)
            # Within a tile 32 bits suffice, and take half as many registers.
            at = row * tl.multiple_of(apart.to(tl.int32), 8) + column
            tl.store(c + first + at, total.to(tl.bfloat16), mask=inside)
            count(tl.load(to + 1).to(tl.pointer_type(tl.int32)))
            owner += 3


@triton.jit(do_not_specialize=["terms", "devices", "polls"])
def add(
    sums,  # two slots of 33554432 elements, in which devices store their terms
    out,  # the result, of `size` elements
    told,  # int32 [devices]: tiles that have arrived from each, over all calls
    tiles,  # int64 [devices]: tiles that arrive in a call
    state,
    size,
    terms,  # number of terms of the result
    devices,
    polls,
):
    """Add terms in order, once all tiles of each device have arrived."""
    epoch = tl.load(state)
    for name in range(devices):
        tiles_told = epoch * tl.load(tiles + name)
        wait(told + name, tiles_told, state, polls, 17 + name)
    sums += tl.cast(epoch & 1, tl.int64) * 33554432
    # A loop over 32-bit numbers would wrap around past 2^31 - 1 elements.
    blocks = tl.cdiv(tl.cast(size, tl.int64), 2048)
    for block in range(tl.program_id(0), blocks, tl.num_programs(0)):
        place = tl.cast(block, tl.int64) * 2048 + tl.arange(0, 2048)
        inside = place < size
        total = tl.load(sums + place, mask=inside).to(tl.float32)
        for term in range(1, terms):
            more = sums + tl.cast(term, tl.int64) * size + place
            total += tl.load(more, mask=inside).to(tl.float32)
        tl.store(out + place, total.to(tl.bfloat16), mask=inside)


_HOST = TritonMatmul(
    __name__,
    f"{LHS} by {RHS} to {OUT} of {LHS_SHAPE}, {RHS_SHAPE} {DTYPE}, {OUT_DTYPE} on {MESH}",
    (LHS_SHAPE, RHS_SHAPE, OUT_SHAPE),
    (DTYPE, OUT_DTYPE),
    IDS,
    (lhs_box, rhs_box, out_box, product_box),
    (offer, announce, multiply, add),
    slots=(0, 0, 33554432),  # elements: offered operands, those of them before rhs, terms
    blocks=(128, 128, 64),  # of i, k and j
    warps=8,  # of a program of `multiply`
    stages=3,  # of its pipelined loads
    described=True,
)
matmul, matmul_local, synchronize = _HOST.matmul, _HOST.matmul_local, _HOST.synchronize

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
