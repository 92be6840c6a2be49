"""One device of a matmul: its kernel arguments and the launches of a call."""

import contextlib
import functools
import itertools

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from .matmul_parts import elements, place_in
from .torch_tensors import LINE, on

PULLERS = 16  # number of programs that pull; `multiply` leaves as many SMs free for them
SIZE = 2048  # number of elements in a block that is copied or added
GROUP = 8  # number of tile rows in a group, visited column by column, for cache reuse
TMA_SINCE = 9, 0  # first compute capability with TMA
HOW = "sum", "max", "min"  # operators of terms; kernels use their index
POLLS = 500  # number of GPU polls in the time of one interpreter poll


class Member:
    """One device of a matmul, at a mesh position. `of`: the `TritonMatmul`; `held`: the device's
    shared memory; `places`: the addresses of all devices' shared memory, by position."""

    def __init__(self, of, position, held, places):
        self.of, self.position, self.home = of, position, held.device
        self.parts, self.held = of.parts, held
        offered, summed, end = of.layout
        number = len(of.ids)
        flags = held[: 12 * number].view(torch.int32)
        self.flags, self.told = flags[: 2 * number], flags[2 * number :]
        self.offered = held[offered:summed].view(of.dtype)
        self.sums = held[summed:end].view(of.out_dtype)
        self.partners = self.parts.partners(position)
        self.partner_table = self._table(self.partners)
        told = [places[name] + 4 * position for name in self.partners]
        self.announced, self.peers = self._table(told), self._table(p + offered for p in places)
        ends = [(place + summed, place + 8 * number + 4 * position) for place in places]
        self.places = self._table(itertools.chain.from_iterable(ends))
        # The number of the call, and the code of a wait that timed out; `noted` is the
        # host's copy.
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
        """Allocate memory for arriving operands."""
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
        """List the jobs of `pull`: one for each part, batch index and holder. A job copies the
        rows of a part, or adds the rows of one term."""
        jobs, self.job_count, unit = [], 0, self.of.unit
        for number, (side, part) in enumerate(self.incoming):
            *batch, rows, columns = part.ranges
            source = self.parts.held[side][part.holder]
            target = self.parts.used[side][self.position]
            places = list(itertools.product(*(range(*ends) for ends in batch)))
            how = HOW.index(self.of.operators["ab".index(side)])
            for at in places:
                first = (*at, rows[0], columns[0])
                jobs += [(
                    holder,
                    (place_in(first, source) + self.of.slots[1] * (side == "b")) // unit,
                    (place_in(first, target) + self.starts[side]) // unit,
                    rows[1] - rows[0],
                    (columns[1] - columns[0]) // unit,
                    (source[-1][1] - source[-1][0]) // unit,
                    (target[-1][1] - target[-1][0]) // unit,
                    number if at == places[-1] else -1,
                    *((len(part.holders), how) if self.parts.adds else ()),
                ) for holder in part.holders]  # fmt: skip
            self.job_count += len(places)
        self.jobs = self._table(itertools.chain.from_iterable(jobs))

    def _list_tiles(self):
        """List the jobs of `multiply`: the tiles, the segments of j to sum, and the destinations
        of tiles."""
        regions = [region for region in self.parts.regions(self.position) if region.owners]
        used = {side: self.parts.used[side][self.position] for side in "abc"}
        start = used["a"][-1][0]
        self.rows_apart = {side: used[side][-1][1] - used[side][-1][0] for side in "ab"}
        tables: list[list] = [[], [], []]
        tiles, segments, owners = tables
        for region in regions:
            a = place_in((*region.at, region.rows[0]), used["a"][:-1])
            b = place_in((*region.at, start), used["b"][:-1])
            across = region.columns[0] - used["b"][-1][0]
            first = len(segments), len(owners), len(region.owners)
            segments += [(low - start, high - start, *of) for low, high, *of in region.segments]
            owners += [self._owner(region, *each) for each in region.owners]
            for row, column in _in_groups(region, self.of.blocks):
                height = min(self.of.blocks[0], region.rows[1] - region.rows[0] - row)
                width = min(self.of.blocks[1], region.columns[1] - region.columns[0] - column)
                tiles.append((height, width, a + row, b, across + column, *first, row, column))
        self.segment_count = len(regions[0].segments) if regions else 0
        self.tile_count = len(tiles)
        self.tile_table, self.segments, self.owners = (
            self._table(itertools.chain.from_iterable(each)) for each in (tiles, segments, owners)
        )

    def _owner(self, region, owner, term):
        """Return a destination of a region: the owner, the region's offset there, and the row
        stride."""
        box = self.parts.held["c"][owner]
        first = place_in((*region.at, region.rows[0], region.columns[0]), box)
        return owner, first + term * elements(box), box[-1][1] - box[-1][0]

    @property
    def described(self):
        """Return whether TMA copies operand blocks; the interpreter emulates TMA."""
        if self.home.type != "cuda" or not (self.of.described and self.of.tma):
            return self.of.described and self.of.tma
        is_nvidia = torch.version.hip is None
        return is_nvidia and torch.cuda.get_device_capability(self.home) >= TMA_SINCE

    @functools.cached_property
    def _matrices(self):
        """Return (rows, columns) of both operands, by side, with batches stacked as rows."""
        return {
            side: (elements(used[:-1]), self.rows_apart[side])
            for side in "ab"
            for used in [self.parts.used[side][self.position]]
        }

    def _operands(self, a, b):
        """Return operands as arguments of `multiply`: as TMA descriptors if TMA copies blocks and
        both operands are aligned to 16 bytes, else as pointers."""
        if not self.of.described:
            return {"a": a, "b": b}
        if not self.described or any(x.data_ptr() % LINE for x in (a, b)):
            return {"a": a, "b": b, "TMA": False}
        rows, columns, depth = self.of.blocks
        a, b = (
            TensorDescriptor(x, self._matrices[side], [self.rows_apart[side], 1], block)
            for side, x, block in (("a", a, [rows, depth]), ("b", b, [depth, columns]))
        )
        return {"a": a, "b": b, "TMA": True}

    def _tiles_of(self, name):
        """Return the number of tiles of the product of device `name` that this device receives in a
        call; `name` is a position."""
        found = 0
        for region in self.parts.regions(name) if self.parts.pushes else ():
            wanted = sum(owner == self.position for owner, _ in region.owners)
            found += wanted * len(_in_groups(region, self.of.blocks))
        return found

    def steps(self, a, b, *, overlap):
        """Return functions that make the launches of a call when called in order. The last
        function returns the result. Raises RuntimeError if an earlier call failed."""
        self._check_noted()
        if self.failed:
            raise RuntimeError(f"{self._me}: an earlier call failed; make a new group")
        self.failed = True  # until the call has ended
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
        """Record that all launches of the call have been made; in the interpreter they have also
        ended. Raises RuntimeError if one is known to have timed out."""
        self.failed = False
        self.noted.copy_(self.state, non_blocking=True)
        if not self.on_gpu:
            self._check_noted()

    def synchronize(self):
        """Wait for all calls. Raises RuntimeError if one failed."""
        if self.on_gpu:
            torch.cuda.synchronize(self.home)
        self._check_noted()

    @property
    def _polls(self):
        return self.of.polls if self.on_gpu else self.of.polls // POLLS

    def _programs(self, few):
        """Return the number of programs of a kernel: `few` in the interpreter, else one per SM."""
        if not self.on_gpu:
            return few
        return torch.cuda.get_device_properties(self.home).multi_processor_count

    def _launch(self, name, programs, options=None, **given):
        """Launch kernel `name` of the module with the arguments that it takes from `given` and
        from the arguments common to all kernels."""
        kernel = self.of.kernels[name]
        given |= {"state": self.state, "partners": len(self.partners), "polls": self._polls}
        given |= {"devices": len(self.of.ids)}
        given = {each: given[each] for each in kernel.arg_names}
        with on(self.home):
            kernel[(programs,)](**given, **options or {})

    def _offer(self, a, b):
        moved = {
            name: x
            for name, side, x in (("lhs", "a", a), ("rhs", "b", b))
            if side in self.parts.moved
        }
        sizes = {f"{name}_size": x.numel() for name, x in moved.items()}
        programs = min(self._programs(2), max(1, -(-max(sizes.values(), default=0) // SIZE)))
        self._launch(
            "offer", programs, offered=self.offered, flags=self.flags, names=self.partner_table,
            **moved, **sizes,
        )  # fmt: skip

    def _announce(self):
        self._launch("announce", 1, places=self.announced)

    @functools.cached_property
    def _pullers(self):
        return PULLERS if self.on_gpu else 2

    @functools.cached_property
    def _side(self):
        return torch.cuda.Stream(self.home)

    def _is_beside(self, overlap):
        """Return whether parts are pulled on a separate stream: if `overlap` requests it, on a
        GPU with more SMs than the pulling programs take."""
        return overlap and self.on_gpu and bool(self.incoming) and self._programs(0) > PULLERS

    def _pull(self, overlap):
        """Pull parts of operands from peers, before or while devices multiply."""
        if not self.incoming:
            return
        beside = self._is_beside(overlap)
        with on(self.home):
            if beside:
                self._side.wait_stream(torch.cuda.current_stream(self.home))
            with torch.cuda.stream(self._side) if beside else contextlib.nullcontext():
                self._launch(
                    "pull", self._pullers, peers=self.peers, into=self.arena, jobs=self.jobs,
                    flags=self.flags, come=self.come, number=self.job_count,
                )  # fmt: skip

    def _multiply(self, a, b, out, overlap):
        """Multiply local and arriving operands. Leave SMs to the pulling programs; otherwise they
        might not run before the programs that wait for them."""
        beside = self._is_beside(overlap)
        programs = self._programs(3) - (self._pullers if beside else 0)
        a, b = (
            self.arena[self.starts[side] :] if side in self.parts.moved else x
            for side, x in zip("ab", (a, b), strict=True)
        )
        if self.tile_count:
            self._launch(
                "multiply", min(programs, self.tile_count), self.of.options, c=out,
                **self._operands(a, b), tiles=self.tile_table, segments=self.segments,
                owners=self.owners, places=self.places, come=self.come, number=self.tile_count,
                segment_count=self.segment_count, a_row=self.rows_apart["a"],
                b_row=self.rows_apart["b"], pullers=self._pullers,
            )  # fmt: skip
        if beside:
            torch.cuda.current_stream(self.home).wait_stream(self._side)

    def _add(self, out):
        """Return `out`. If terms were pushed, first wait for them and write their sum to `out`."""
        if self.parts.pushes and out.numel():
            self._launch(
                "add", min(self._programs(2), -(-out.numel() // SIZE)), sums=self.sums, out=out,
                told=self.told, tiles=self.tiles, size=out.numel(),
                terms=self.parts.terms(self.position),
            )  # fmt: skip
        return out

    @property
    def _me(self):
        return f"device {self.of.ids[self.position]}, {self.of.said}"

    def _check_noted(self):
        """Raise RuntimeError, naming the event waited for, if a kernel's wait timed out."""
        epoch, code = self.noted.tolist()
        if code:
            from .torch_told import awaited  # imported on first use

            self.failed = True
            said = f"{self._me}: call {epoch} timed out waiting for {awaited(self, code)}"
            raise RuntimeError(said)


def _in_groups(region, blocks):
    """Return the offsets (row, column) of a region's tiles, column by column within groups of
    `GROUP` rows of tiles."""
    starts = range(0, region.rows[1] - region.rows[0], blocks[0])
    columns = range(0, region.columns[1] - region.columns[0], blocks[1])
    return [
        (row, column)
        for group in range(0, len(starts), GROUP)
        for column in columns
        for row in starts[group : group + GROUP]
    ]
