"""One device of a matmul: what its kernels are given, and their launches in a call."""

import contextlib
import functools
import itertools
import math

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from .matmul_parts import elements, place_in
from .torch_tensors import LINE, UNITS, on
from .triton_matmul import Tiling, add, announce, multiply, offer, pull, pull_terms
from .triton_rows import Block

PULLERS = 16  # programs that pull, to which as many SMs are left
SIZE = 2048  # elements of a block that is copied, or added
GROUP = 8  # rows of tiles that are multiplied in turn, for the sake of the cache
TMA_SINCE = 9, 0  # compute capability
TMA_ITEM = 2  # bytes of what is described: of int8 wgmma takes b by columns, of float32 none
HOW = "sum", "max", "min"  # terms are combined, by number
POLLS = 500  # of a GPU in the time of one in the interpreter


class Member:
    """The device at a position. `of`: the `TritonMatmul`; `held`: the memory that others find at
    `places[position]`, where this device finds theirs."""

    def __init__(self, of, position, held, places):
        self.of, self.position, self.home = of, position, held.device
        self.parts, self.held = of.parts, held
        offered, self.slot, self.rhs_at, summed, self.sum_slot, end = of.layout
        number, item = len(of.ids), of.dtype.itemsize
        flags = held[: 12 * number].view(torch.int32)
        self.flags, self.told = flags[: 2 * number], flags[2 * number :]
        self.offered = held[offered : offered + 2 * self.slot * item].view(of.dtype)
        self.sums = held[summed:end].view(of.out_dtype)
        self.partners = self._table(self.parts.partners(position))
        told = [places[name] + 4 * position for name in self.parts.partners(position)]
        self.announced, self.peers = self._table(told), self._table(p + offered for p in places)
        ends = [(place + summed, place + 8 * number + 4 * position) for place in places]
        self.places = self._table(itertools.chain.from_iterable(ends))
        # The number of the call, and who waited for what in vain; what the host knows of both.
        self.state = torch.zeros(2, dtype=torch.int32, device=self.home)
        self.noted = torch.zeros(2, dtype=torch.int32, pin_memory=self.on_gpu)
        self.failed, self.incoming = False, self.parts.incoming(position)
        self.come = torch.zeros(len(self.incoming), dtype=torch.int32, device=self.home)
        self.tiles = self._table(self._tiles_of(name) for name in range(number))
        self._place_operands()
        self._list_jobs()
        self._list_tiles()

    @property
    def on_gpu(self):
        return self.home.type == "cuda"

    def _table(self, numbers):
        return torch.tensor(list(numbers), dtype=torch.int64).to(self.home)

    def _place_operands(self):
        """Make memory for the operands that come."""
        sizes = [
            elements(self.parts.used[side][self.position]) * (side in self.parts.moved)
            for side in "ab"
        ]
        unit = LINE // self.of.dtype.itemsize
        starts = [0, -(-sizes[0] // unit) * unit]
        self.starts = dict(zip("ab", starts, strict=True))
        total = -(-(starts[1] + sizes[1]) // unit) * unit
        self.arena = torch.empty(total, dtype=self.of.dtype, device=self.home)

    def _list_jobs(self):
        """List what `pull` copies, and `pull_terms` adds: rows of each part, for each index of the
        batch, and for each term."""
        jobs, widest, self.job_count = [], 1, 0
        for number, (side, part) in enumerate(self.incoming):
            *batch, rows, columns = part.ranges
            source = self.parts.held[side][part.holder]
            target = self.parts.used[side][self.position]
            places = list(itertools.product(*(range(*ends) for ends in batch)))
            widest = max(widest, columns[1] - columns[0])
            for at in places:
                first = (*at, rows[0], columns[0])
                jobs += [(
                    holder,
                    place_in(first, source) + self.rhs_at * (side == "b"),
                    place_in(first, target) + self.starts[side],
                    rows[1] - rows[0],
                    columns[1] - columns[0],
                    source[-1][1] - source[-1][0],
                    target[-1][1] - target[-1][0],
                    number if at == places[-1] else -1,
                    len(part.holders),
                    HOW.index(self.of.operators["ab".index(side)]),
                ) for holder in part.holders]  # fmt: skip
            self.job_count += len(places)
        line = LINE // self.of.dtype.itemsize
        numbers = (n for job in jobs for n in (job[1], job[2], *job[4:7]))
        unit = math.gcd(line, *numbers)
        # What is added is no units of several elements.
        self.adds = len(jobs) > self.job_count
        width = 1 if self.adds else min(unit, 8 // self.of.dtype.itemsize)
        units = widest // width
        columns = min(128, 1 << (units - 1).bit_length()) if units else 1
        lanes = line // width if unit == line else 1
        self.block = Block(width, lanes, SIZE // columns, columns, -(-units // columns))
        self.jobs = self._table(itertools.chain.from_iterable(jobs))

    def _list_tiles(self):
        """List what `multiply` multiplies: tiles, the stretches of j that they are summed over, and
        where they go."""
        cells = [cell for cell in self.parts.cells(self.position) if cell.owners]
        used = {side: self.parts.used[side][self.position] for side in "abc"}
        start = used["a"][-1][0]
        self.rows_apart = {side: used[side][-1][1] - used[side][-1][0] for side in "ab"}
        tables: list[list] = [[], [], []]
        tiles, stretches, owners = tables
        for cell in cells:
            a = place_in((*cell.at, cell.rows[0]), used["a"][:-1])
            b = place_in((*cell.at, start), used["b"][:-1])
            across = cell.columns[0] - used["b"][-1][0]
            first = len(stretches), len(owners), len(cell.owners)
            stretches += [(low - start, high - start, *of) for low, high, *of in cell.stretches]
            owners += [self._owner(cell, *each) for each in cell.owners]
            for row, column in _in_groups(cell, self.of.blocks):
                height = min(self.of.blocks[0], cell.rows[1] - cell.rows[0] - row)
                width = min(self.of.blocks[1], cell.columns[1] - cell.columns[0] - column)
                tiles.append((height, width, a + row, b, across + column, *first, row, column))
        self.stretched = len(cells[0].stretches) if cells else 0
        self.tile_count = len(tiles)
        self.tiling = self._tiling(tiles, stretches, owners)
        self.tile_table, self.stretches, self.owners = (
            self._table(itertools.chain.from_iterable(each)) for each in (tiles, stretches, owners)
        )

    def _owner(self, cell, owner, term):
        """Return where a cell goes: to whom, where it begins there, how far apart rows are."""
        box = self.parts.held["c"][owner]
        first = place_in((*cell.at, cell.rows[0], cell.columns[0]), box)
        return owner, first + term * elements(box), box[-1][1] - box[-1][0]

    def _tiling(self, tiles, stretches, owners):
        """Return how `multiply` is compiled for what is listed."""
        rows, columns, depth = self.of.blocks
        line, out_line = (LINE // each.itemsize for each in (self.of.dtype, self.of.out_dtype))
        ends = [end for stretch in stretches for end in stretch[:2]]
        a_unit = math.gcd(line, self.rows_apart["a"], *ends)
        b_unit = math.gcd(line, self.rows_apart["b"], *(tile[4] for tile in tiles))
        described = (
            self._has_tma
            and self.of.dtype.itemsize == TMA_ITEM
            and a_unit == b_unit == line
            and self._end_together(tiles, stretches)
        )
        return Tiling(
            rows,
            columns,
            depth,
            all(tile[1] == columns for tile in tiles),
            all((high - low) % depth == 0 for low, high, *_ in stretches),
            bool(self.incoming),
            self.parts.pushes,
            a_unit,
            b_unit,
            math.gcd(
                out_line,
                *(number for owner in owners for number in owner[1:]),
                *(number for tile in tiles for number in (tile[1], tile[-1])),
            ),
            self.home.type == "cpu" and self.of.dtype == torch.bfloat16,
            self.of.dtype == torch.float32,
            described,
            described and bool(self.incoming) and self.home.type != "cpu",
        )

    @property
    def _has_tma(self):
        """Whether the chip has TMA, which the interpreter can do as well."""
        if self.home.type != "cuda":
            return self.of.tma
        is_nvidia = torch.version.hip is None
        return is_nvidia and torch.cuda.get_device_capability(self.home) >= TMA_SINCE

    @functools.cached_property
    def _matrices(self):
        """The rows and columns of both operands, one index of the batch below the other."""
        return {
            side: (elements(used[:-1]), self.rows_apart[side])
            for side in "ab"
            for used in [self.parts.used[side][self.position]]
        }

    def _end_together(self, tiles, stretches):
        """Return whether blocks are whole, or end where the operands end: beyond that TMA copies
        nothing, and within it what is another's, or has not come."""
        rows, columns, depth = self.of.blocks
        (a_rows, along), (b_rows, across) = self._matrices["a"], self._matrices["b"]
        return (
            bool(tiles)
            and all(tile[0] == rows or tile[2] + tile[0] == a_rows for tile in tiles)
            and all(tile[1] == columns or tile[4] + tile[1] == across for tile in tiles)
            and all(
                (high - low) % depth == 0 or high == along == b_rows for low, high, *_ in stretches
            )
        )

    def _described(self, a, b):
        """Return how `multiply` is compiled for two operands, and these as it takes them; through
        pointers also where one of the caller's begins at no multiple of 16 bytes."""
        aligned = all(x.data_ptr() % LINE == 0 for x in (a, b))
        if not (self.tiling.described and self.of.tma and aligned):
            return self.tiling._replace(described=False, fences=False), a, b
        rows, columns, depth = self.of.blocks
        a, b = (
            TensorDescriptor(x, self._matrices[side], [self.rows_apart[side], 1], block)
            for side, x, block in (("a", a, [rows, depth]), ("b", b, [depth, columns]))
        )
        return self.tiling, a, b

    def _tiles_of(self, name):
        """Return how many tiles of a device's product come to this one in a call."""
        found = 0
        for cell in self.parts.cells(name) if self.parts.pushes else ():
            wanted = sum(owner == self.position for owner, _ in cell.owners)
            found += wanted * len(_in_groups(cell, self.of.blocks))
        return found

    def steps(self, a, b, *, overlap):
        """Return the launches of a call, to be made in order; the last one returns the result."""
        self._check_noted()
        if self.failed:
            raise RuntimeError(f"{self._me}: a call failed before; make a new group for others")
        self.failed = True  # until it has ended
        shape = self.of.shape(2, self.position)
        out = torch.empty(shape, dtype=self.of.out_dtype, device=self.home)
        given = functools.partial
        return (
            given(self._offer, a, b),
            self._announce,
            given(self._pull, overlap),
            given(self._multiply, a, b, out, overlap),
            given(self._add, out),
        )

    def ended(self):
        """Note that all of a call is launched; in the interpreter, that it is done."""
        self.failed = False
        self.noted.copy_(self.state, non_blocking=True)
        if not self.on_gpu:
            self._check_noted()

    def synchronize(self):
        """Wait for all calls. Raises RuntimeError where one failed."""
        if self.on_gpu:
            torch.cuda.synchronize(self.home)
        self._check_noted()

    @property
    def _polls(self):
        return self.of.polls if self.on_gpu else self.of.polls // POLLS

    def _programs(self, few):
        """Return how many programs a kernel has: few in the interpreter."""
        if not self.on_gpu:
            return few
        return torch.cuda.get_device_properties(self.home).multi_processor_count

    def _offer(self, a, b):
        sizes = [
            x.numel() * (side in self.parts.moved) for side, x in zip("ab", (a, b), strict=True)
        ]
        programs = min(self._programs(2), max(1, -(-max(sizes) // SIZE)))
        with on(self.home):
            offer[(programs,)](
                a, b, self.offered, self.flags, self.partners, self.state, *sizes, self.rhs_at,
                self.slot, len(self.partners), len(self.of.ids), self._polls, SIZE,
            )  # fmt: skip

    def _announce(self):
        with on(self.home):
            announce[(1,)](self.announced, self.state, len(self.partners), len(self.of.ids))

    @functools.cached_property
    def _pullers(self):
        return PULLERS if self.on_gpu else 2

    @functools.cached_property
    def _side(self):
        return torch.cuda.Stream(self.home)

    def _pull(self, overlap):
        """Take parts of operands, on a stream of its own where that overlaps."""
        if not self.incoming:
            return
        beside = self.on_gpu and overlap
        with on(self.home):
            if beside:
                self._side.wait_stream(torch.cuda.current_stream(self.home))
            with torch.cuda.stream(self._side) if beside else contextlib.nullcontext():
                kernel = pull_terms if self.adds else pull
                kernel[(self._pullers,)](
                    self.peers, self._arena, self.jobs, self.flags, self.come, self.state,
                    self.job_count, len(self.of.ids), self.slot, self._polls, self.block,
                )  # fmt: skip

    @property
    def _arena(self):
        """What operands come to, in the units in which they are copied."""
        if self.adds:
            return self.arena
        return self.arena.view(UNITS[self.block.width * self.of.dtype.itemsize])

    def _multiply(self, a, b, out, overlap):
        """Multiply what is here and what comes; those that pull have SMs of their own, without
        which they might not run before what waits for them."""
        beside = self.on_gpu and overlap and bool(self.incoming)
        programs = self._programs(3) - (self._pullers if beside else 0)
        a, b = (
            self.arena[self.starts[side] :] if side in self.parts.moved else x
            for side, x in zip("ab", (a, b), strict=True)
        )
        with on(self.home):
            if self.tile_count:
                tiling, a, b = self._described(a, b)
                multiply[(min(programs, self.tile_count),)](
                    a, b, out, self.tile_table, self.stretches, self.owners, self.places, self.come,
                    self.state, self.tile_count, self.stretched, *self.rows_apart.values(),
                    self.sum_slot, self._pullers, self._polls, 1 + 2 * len(self.of.ids),
                    tiling, **self.of.options,
                )  # fmt: skip
            if beside:
                torch.cuda.current_stream(self.home).wait_stream(self._side)

    def _add(self, out):
        """Return the result, once all terms of it have come."""
        if self.parts.pushes and out.numel():
            code = 1 + 2 * len(self.of.ids) + len(self.incoming)
            programs = min(self._programs(2), -(-out.numel() // SIZE))
            with on(self.home):
                add[(programs,)](
                    self.sums, out, self.told, self.tiles, self.state, out.numel(), self.sum_slot,
                    self.parts.terms(self.position), len(self.of.ids), self._polls, code,
                    self.of.neutral, SIZE,
                )  # fmt: skip
        return out

    @property
    def _me(self):
        return f"device {self.of.ids[self.position]}, {self.of.said}"

    def _check_noted(self):
        """Raise RuntimeError where a kernel waited in vain, by its code."""
        epoch, code = self.noted.tolist()
        if not code:
            return
        self.failed = True
        kind, which = divmod(code - 1, len(self.of.ids))
        if kind < 2:
            what = ("the call before", "the operands")[kind] + f" of device {self.of.ids[which]}"
        else:
            what = self._missing(code - 1 - 2 * len(self.of.ids))
        raise RuntimeError(f"{self._me}: call {epoch} waits in vain for {what}")

    def _missing(self, number):
        """Return in words the part of an operand, or the terms, that a code is of."""
        if number >= len(self.incoming):
            return f"terms of device {self.of.ids[number - len(self.incoming)]}"
        side, part = self.incoming[number]
        ranges = " x ".join(f"[{low}, {high})" for low, high in part.ranges)
        name = {"a": "lhs", "b": "rhs"}[side]
        holders = ", ".join(str(self.of.ids[holder]) for holder in part.holders)
        return f"{name} {ranges} of device{'s' * (len(part.holders) > 1)} {holders}"


def _in_groups(cell, blocks):
    """Return where the tiles of a cell begin in it: some rows of tiles, column after column."""
    starts = range(0, cell.rows[1] - cell.rows[0], blocks[0])
    columns = range(0, cell.columns[1] - cell.columns[0], blocks[1])
    return [
        (row, column)
        for group in range(0, len(starts), GROUP)
        for column in columns
        for row in starts[group : group + GROUP]
    ]
