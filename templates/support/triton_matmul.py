"""The kernels of a matmul whose operands come, and whose sums leave, while a GPU multiplies.

A device offers its shards in memory that its peers read, and tells them so. On a stream of its own
`pull` takes parts of operands from there, and counts for each part the programs that are done with
it. `multiply` is persistent: it goes through tiles in the order in which parts come, and waits for
those of a tile before it first loads of them. What belongs to another device it stores there, and
counts. `add` waits for all terms, and adds them in one order on all devices.

Calls are numbered by an epoch that stands in device memory, so that a captured graph counts too.
Whoever waits for something of a call waits for its number, or for its number times what counts in
one: nothing is ever set back. What peers read or store lies in two slots, taken in turn; nobody
begins a call before its partners have begun the one before, and so ended the one before that.

All that is told is released after a barrier of the program's threads, all that is waited for is
acquired, over the system: peers are on other GPUs. Tested with triton 3.7.1 and torch 2.13.0.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from .triton_rows import copy_rows, rows_at, shard_at

HAS_POLL = tl.constexpr(hasattr(tl, "atomic_poll"))
TILE_FIELDS = tl.constexpr(10)
JOB_FIELDS = tl.constexpr(10)
# Numbers that differ from device to device, of which none gets a kernel of its own.
MULTIPLIED = "number", "stretched", "a_row", "b_row", "slot", "pullers", "polls", "code"
POLL_NS = tl.constexpr(1000)  # of one poll


class Tiling(NamedTuple):
    """How `multiply` is compiled: blocks of i, k and j; whether all tiles and stretches of j are
    whole ones; whether parts of operands come, and whether sums leave; what divides, in elements,
    where rows of a, b and the result begin and end; whether operands become float32 first, since
    the interpreter multiplies the bits of bfloat16; whether products are of float32, exactly;
    whether a and b are descriptors, whose blocks TMA copies, with nothing beyond where operands
    end; whether that has to be fenced, which the interpreter can not."""

    rows: int
    columns: int
    depth: int
    whole_columns: bool
    whole_depth: bool
    waits: bool
    pushes: bool
    a_unit: int
    b_unit: int
    c_unit: int
    widens: bool
    exact: bool
    described: bool
    fences: bool


@triton.jit
def wait(flag, wanted, state, polls, code):
    """Wait until a flag is what is wanted, and acquire what was written before. After so many polls
    note the code of who waits for what; whoever waits next does not wait again."""
    left, wanted = tl.where(tl.load(state + 1) == 0, polls, 0), tl.cast(wanted, tl.int32)
    seen = tl.atomic_add(flag, 0, sem="acquire", scope="sys")
    while (left > 0) & (seen != wanted):
        if HAS_POLL:  # it sleeps; of one that times out nothing is acquired
            tl.atomic_poll(flag, wanted, sem="acquire", scope="sys", timeout_ns=POLL_NS)
        seen = tl.atomic_add(flag, 0, sem="acquire", scope="sys")
        left -= 1
    if seen != wanted:
        tl.atomic_cas(state + 1, 0, tl.cast(code, tl.int32))


@triton.jit
def count(flag):
    """Count this program, once all of its threads have stored what they store."""
    tl.debug_barrier()
    tl.atomic_add(flag, 1, sem="release", scope="sys")


@triton.jit
def fence(number):
    """Let what was acquired be there for TMA too, which reads memory in a way of its own."""
    code: tl.constexpr = "fence.proxy.async.global; mov.u32 $0, $1;"
    tl.inline_asm_elementwise(code, "=r,r", [number], tl.int32, is_pure=False, pack=1)


@triton.jit
def blocks_of(size, SIZE: tl.constexpr):
    """Return the number of blocks that cover `size` elements, in 64 bits: a loop over 32-bit
    numbers would wrap around past 2^31 - 1 elements."""
    return tl.cdiv(tl.cast(size, tl.int64), SIZE)


@triton.jit
def copy_all(source, target, size, SIZE: tl.constexpr):
    """Copy contiguous elements, block after block; all programs share the blocks."""
    for block in range(tl.program_id(0), blocks_of(size, SIZE), tl.num_programs(0)):
        place = tl.cast(block, tl.int64) * SIZE + tl.arange(0, SIZE)
        inside = place < size
        tl.store(target + place, tl.load(source + place, mask=inside), mask=inside)


@triton.jit(do_not_specialize=["partners", "devices", "polls"])
def offer(
    lhs, rhs, offered, flags, names, state, lhs_size, rhs_size, rhs_at, slot, partners, devices,
    polls, SIZE: tl.constexpr,
):  # fmt: skip
    """Copy shards to this call's slot, once nobody reads any more what was there two calls ago."""
    epoch = tl.load(state) + 1
    before = flags + (epoch - 1 & 1) * devices
    for number in range(partners):
        name = tl.load(names + number)
        wait(before + name, epoch - 1, state, polls, 1 + name)
    offered += (epoch & 1) * tl.cast(slot, tl.int64)
    copy_all(lhs, offered, lhs_size, SIZE)
    copy_all(rhs, offered + rhs_at, rhs_size, SIZE)


@triton.jit(do_not_specialize=["partners", "devices"])
def announce(places, state, partners, devices):
    """Begin a call: tell all partners, whose `places` for it are listed. One program."""
    epoch = tl.load(state) + 1
    tl.store(state, epoch)
    tl.debug_barrier()
    for number in range(partners):
        place = tl.load(places + number).to(tl.pointer_type(tl.int32))
        tl.atomic_xchg(place + (epoch & 1) * devices, epoch, sem="release", scope="sys")


@triton.jit(do_not_specialize=["number", "devices", "slot", "polls"])
def pull(peers, into, jobs, flags, come, state, number, devices, slot, polls, BLOCK: tl.constexpr):
    """Take parts of operands, one after another: rows of what the device at a position offers, once
    it has. `slot`: elements of one; `BLOCK`: see `triton_rows`."""
    epoch = tl.load(state)
    for job in range(number):
        row = jobs + job * JOB_FIELDS
        holder = tl.load(row)
        wait(flags + (epoch & 1) * devices + holder, epoch, state, polls, 1 + devices + holder)
        source = shard_at(peers, holder, into, BLOCK)
        read = tl.load(row + 1) + (epoch & 1) * tl.cast(slot, tl.int64)
        write, rows, columns = tl.load(row + 2), tl.load(row + 3), tl.load(row + 4)
        read_row, write_row = tl.load(row + 5), tl.load(row + 6)
        blocks = tl.cdiv(rows, BLOCK.rows) * BLOCK.column_blocks
        for number_of in range(tl.program_id(0), blocks, tl.num_programs(0)):
            block = tl.cast(number_of, tl.int64)
            copy_rows(
                source, into, read, write, read_row, write_row, rows, columns, block, BLOCK=BLOCK
            )
        part = tl.load(row + 7)
        if part >= 0:
            count(come + part)


@triton.jit
def combined(total, more, how):
    """Return what two terms make: their sum, the larger (1), or the smaller (2), NaN before all."""
    high = tl.maximum(total, more, propagate_nan=tl.PropagateNan.ALL)
    low = tl.minimum(total, more, propagate_nan=tl.PropagateNan.ALL)
    return tl.where(how == 0, total + more, tl.where(how == 1, high, low))


@triton.jit(do_not_specialize=["number", "devices", "slot", "polls"])
def pull_terms(
    peers, into, jobs, flags, come, state, number, devices, slot, polls, BLOCK: tl.constexpr
):
    """Take parts of operands, as `pull` does; of some, rows of several devices that are added in
    the order in which they are listed, and rounded once."""
    epoch, row = tl.load(state), jobs
    wide: tl.constexpr = tl.int32 if into.dtype.element_ty.is_int() else tl.float32
    lanes: tl.constexpr = BLOCK.lanes
    offset = (epoch & 1) * tl.cast(slot, tl.int64)
    for _ in range(number):
        terms, how = tl.load(row + 8), tl.load(row + 9)
        for term in range(terms):
            holder = tl.load(row + term * JOB_FIELDS)
            wait(flags + (epoch & 1) * devices + holder, epoch, state, polls, 1 + devices + holder)
        write, rows = tl.multiple_of(tl.load(row + 2), lanes), tl.load(row + 3)
        columns = tl.multiple_of(tl.load(row + 4), lanes)
        read_row = tl.multiple_of(tl.load(row + 5), lanes)
        write_row = tl.multiple_of(tl.load(row + 6), lanes)
        blocks = tl.cdiv(rows, BLOCK.rows) * BLOCK.column_blocks
        for number_of in range(tl.program_id(0), blocks, tl.num_programs(0)):
            block = tl.cast(number_of, tl.int64)
            first = tl.multiple_of(tl.load(row + 1) + offset, lanes)
            at, to, inside = rows_at(
                first, write, read_row, write_row, rows, columns, block, BLOCK=BLOCK
            )
            source = shard_at(peers, tl.load(row), into, BLOCK)
            total = tl.load(source + at, mask=inside).to(wide)
            for term in range(1, terms):
                other = row + term * JOB_FIELDS
                source = shard_at(peers, tl.load(other), into, BLOCK)
                apart = tl.multiple_of(tl.load(other + 1) + offset - first, lanes)
                more = tl.load(source + (at + apart), mask=inside).to(wide)
                total = combined(total, more, how)
            tl.store(into + to, total.to(into.dtype.element_ty), mask=inside)
        part = tl.load(row + 7)
        if part >= 0:
            count(come + part)
        row += terms * JOB_FIELDS


@triton.jit
def product(total, a, b, b_row, columns, depth, TILE: tl.constexpr):
    """Return a sum with the product of rows of a and columns of b over so much of j."""
    k, column = tl.arange(0, TILE.depth), tl.arange(0, TILE.columns)[None, :]
    a += k[None, :]
    b += k[:, None] * b_row
    for start in tl.range(0, depth, TILE.depth):
        inside = k < depth - start
        x = tl.load(a) if TILE.whole_depth else tl.load(a, inside[None, :], 0)
        if TILE.whole_depth and TILE.whole_columns:
            y = tl.load(b)
        elif TILE.whole_columns:
            y = tl.load(b, inside[:, None], 0)
        else:
            y = tl.load(b, inside[:, None] & (column < columns), 0)
        total = plus(total, x, y, TILE=TILE)
        a += TILE.depth
        b += TILE.depth * b_row
    return total


@triton.jit
def described_product(total, a, b, a_at, b_at, start, columns, depth, TILE: tl.constexpr):
    """Return that of described operands: their first rows, where they begin in j, and in k."""
    for along in tl.range(start, start + depth, TILE.depth):
        total = plus(total, a.load([a_at, along]), b.load([b_at + along, columns]), TILE=TILE)
    return total


@triton.jit
def plus(total, x, y, TILE: tl.constexpr):
    """Return a sum with the product of two blocks."""
    if TILE.widens:
        x, y = x.to(tl.float32), y.to(tl.float32)
    if TILE.exact:
        total = tl.dot(x, y, total, input_precision="ieee", out_dtype=total.dtype)
    else:
        total = tl.dot(x, y, total, out_dtype=total.dtype)
    return total


@triton.jit
def give(c, total, tile, owners, places, epoch, slot, row, column, inside, TILE: tl.constexpr):
    """Store a tile of the product for each owner of a part of it, and count it there."""
    c_unit: tl.constexpr = TILE.c_unit
    # Where it goes, for each owner: its position, the first element of the cell, rows apart.
    owner = owners + tl.load(tile + 6) * 3
    for _ in range(tl.load(tile + 7)):
        place, name = c, tl.load(owner)
        if TILE.pushes:
            place = tl.multiple_of(tl.load(places + 2 * name).to(c.dtype), 16)
            place += tl.multiple_of((epoch & 1) * tl.cast(slot, tl.int64), c_unit)
        apart = tl.multiple_of(tl.load(owner + 2), c_unit)
        first = tl.multiple_of(tl.load(owner + 1), c_unit) + tl.load(tile + 8) * apart
        first += tl.multiple_of(tl.load(tile + 9), c_unit)
        # Within a tile 32 bits are enough, and take half as many registers.
        at = row * tl.multiple_of(apart.to(tl.int32), c_unit) + column
        tl.store(place + first + at, total.to(c.dtype.element_ty), mask=inside)
        if TILE.pushes:
            count(tl.load(places + 2 * name + 1).to(tl.pointer_type(tl.int32)))
        owner += 3


@triton.jit(do_not_specialize=MULTIPLIED)
def multiply(
    a, b, c, tiles, stretches, owners, places, come, state, number, stretched, a_row, b_row, slot,
    pullers, polls, code, TILE: tl.constexpr,
):  # fmt: skip
    """Multiply tile after tile: see `Tiling`, and `torch_matmul` for what tables list."""
    epoch = tl.load(state)
    wide: tl.constexpr = tl.int32 if c.dtype.element_ty.is_int() else tl.float32
    a_unit: tl.constexpr = TILE.a_unit
    b_unit: tl.constexpr = TILE.b_unit
    c_unit: tl.constexpr = TILE.c_unit
    a_row = tl.multiple_of(tl.cast(a_row, tl.int64), a_unit)
    b_row = tl.multiple_of(tl.cast(b_row, tl.int64), b_unit)
    row, column = tl.arange(0, TILE.rows)[:, None], tl.arange(0, TILE.columns)[None, :]
    for turn in tl.range(tl.program_id(0), number, tl.num_programs(0)):
        tile = tiles + tl.cast(turn, tl.int64) * TILE_FIELDS
        rows, columns = tl.load(tile).to(tl.int32), tl.load(tile + 1).to(tl.int32)
        columns = tl.multiple_of(columns, c_unit)
        a_at, b_at = tl.load(tile + 2), tl.load(tile + 3)
        across = tl.multiple_of(tl.load(tile + 4), b_unit)
        if not TILE.described:
            # Rows beyond the last one are that one: they are multiplied, and not stored.
            a_at = a + a_at * a_row + tl.minimum(row, rows - 1) * a_row
            b_at = b + b_at * b_row + across + column
        total = tl.full((TILE.rows, TILE.columns), 0, wide)
        stretch = stretches + tl.load(tile + 5) * 4
        for _ in range(stretched):
            start = tl.multiple_of(tl.load(stretch), a_unit)
            depth = tl.multiple_of((tl.load(stretch + 1) - start).to(tl.int32), a_unit)
            if TILE.waits:
                for side in tl.static_range(2, 4):
                    part = tl.load(stretch + side)
                    if part >= 0:
                        wait(come + part, epoch * pullers, state, polls, code + part.to(tl.int32))
                if TILE.fences:
                    fence(epoch)
            if TILE.described:
                total = described_product(
                    total, a, b, a_at.to(tl.int32), b_at.to(tl.int32), start.to(tl.int32),
                    across.to(tl.int32), depth, TILE=TILE,
                )  # fmt: skip
            else:
                total = product(
                    total, a_at + start, b_at + start * b_row, b_row, columns, depth, TILE=TILE
                )
            stretch += 4
        inside = (row < rows) & (column < columns)
        give(c, total, tile, owners, places, epoch, slot, row, column, inside, TILE=TILE)


@triton.jit(do_not_specialize=["terms", "devices", "polls", "code", "neutral"])
def add(
    sums, out, told, tiles, state, size, slot, terms, devices, polls, code, neutral,
    SIZE: tl.constexpr,
):  # fmt: skip
    """Add terms in their order, once all `tiles` of each device have come; where there are none,
    the result is `neutral`."""
    epoch = tl.load(state)
    for name in range(devices):
        wait(told + name, epoch * tl.load(tiles + name), state, polls, code + name)
    wide: tl.constexpr = tl.int32 if out.dtype.element_ty.is_int() else tl.float32
    sums += (epoch & 1) * tl.cast(slot, tl.int64)
    for block in range(tl.program_id(0), blocks_of(size, SIZE), tl.num_programs(0)):
        place = tl.cast(block, tl.int64) * SIZE + tl.arange(0, SIZE)
        inside = place < size
        none = tl.cast(neutral, out.dtype.element_ty)
        held = tl.where(terms > 0, size, 0)
        total = tl.load(sums + place, mask=place < held, other=none).to(wide)
        for term in range(1, terms):
            more = sums + tl.cast(term, tl.int64) * size + place
            total += tl.load(more, mask=inside).to(wide)
        tl.store(out + place, total.to(out.dtype.element_ty), mask=inside)
