"""The windows form: senders shift chunks of tiles in VMEM and write them, aligned, to a staging
area on the receiver, which assembles every block of its target shard from there.

A tile's place in the staging area is its place in the target shard, rounded down to whole units,
plus one unit for every earlier tile. So tiles never overlap: in units, a tile that starts u into
the shard and is w wide ends at floor(u) + ceil(w) <= floor(u + w) + 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from typing import ClassVar

from shardwright.codegen.backends.pallas_tpu.facts import FormFacts, Kernels
from shardwright.codegen.backends.pallas_tpu.figures import (
    Figures,
    least_traffic,
    relayout,
    width,
)
from shardwright.codegen.backends.pallas_tpu.form import Delivery, Form
from shardwright.codegen.backends.pallas_tpu.kernel_text import (
    SENDS,
    KernelRequest,
    KernelText,
    Moving,
    ProgramText,
    by,
    printed,
)
from shardwright.codegen.backends.pallas_tpu.memory import (
    FLAT_UNIT,
    LANES,
    View,
    padded_elements,
    round_up,
    tile_rows,
    views,
)
from shardwright.codegen.backends.pallas_tpu.pieces import Pieces, Sums
from shardwright.codegen.backends.pallas_tpu.proofs import expect
from shardwright.codegen.backends.pallas_tpu.window_dims import WindowDim, prove_windows
from shardwright.codegen.moves.network.flows import flows
from shardwright.codegen.moves.network.timeline import Copies, Sends, Stage
from shardwright.codegen.text.index_functions import source_at
from shardwright.ir.algebra.index import Integers
from shardwright.ir.exchange import Exchange
from shardwright.ir.tiles import DimTiles

MAX_LANES = 1024
MAX_WINDOW = 96 * 1152
"""The most elements of a window. Two windows, six chunks and the temporaries of shifts then take
less than 6 MiB of VMEM, out of the 16 MiB that a kernel has by default on every generation. Shifts
are unrolled over a window, so larger windows compile more slowly (three times the elements take 1.3
times as long) and save only 0.6% of the HBM traffic."""
SLOTS = 6
"""The most chunks in flight: one for each link of a chip, which has at most six."""
TEMPORARIES = 5
"""The number of temporary windows of 32-bit words that the compiler needs to shift a window."""
FEWEST_ROWS = 5
"""The fewest rows of a source shard that is not padded. Shorter arrays would have smaller memory
tiles than windows, so they are padded to 8 rows."""
STAGED = "the result from the staging area"
"""The name of the copy that the kernel makes once all chunks have arrived."""
VMEM_BYTES = 16 * 2**20
"""The VMEM that a kernel may use by default, in bytes, on every generation."""


@dataclass(frozen=True)
class Windows(Form):
    """The windows form of an exchange. `dims`: its dimensions, in view order; `few_rows`: the
    number of rows to which a source shard with fewer rows is padded."""

    facts: ClassVar[FormFacts] = FormFacts(
        name="windows",
        rank=3,
        does="chunks of tiles are shifted in VMEM into a staging area, and assembled from there",
        kernels=Kernels(("unpack_kernel",), ("tiling", "slots"), ("push_kernel",)),
        buffers="staged",
        support=("pallas_shifts", "pallas_windows"),
    )
    dims: tuple[WindowDim, ...]
    few_rows: int

    @classmethod
    def every(cls, delivery: Delivery) -> Iterator[Form]:
        sums = delivery.exchange.once(Sums)
        for view in views(len(delivery.exchange.dims)):
            yield Windows.of(sums, delivery.itemsize, view)

    @staticmethod
    def of(sums: Sums, itemsize: int, view: View) -> Windows:
        """Return the form for an exchange, in a dimension order."""
        tiles = tuple(sums.exchange.dims[axis] for axis in view)
        pieces = tuple(sums.pieces[axis] for axis in view)
        widest = tuple(int(p.width.max()) for p in pieces)
        packed = 4 // min(itemsize, 4)
        if len(view) == 1:
            granule = FLAT_UNIT * packed
            most = MAX_WINDOW // granule * granule - granule
            chunk = min(most, round_up(widest[0], granule))
            flat = WindowDim.of(tiles[0], pieces[0], FLAT_UNIT, chunk, granule)
            return Windows(view, itemsize, (flat,), 0)
        source_rows = tiles[-2].source.size
        if source_rows < FEWEST_ROWS:
            source_rows = 8
        unit = tile_rows(source_rows, itemsize)
        granule = max(8 * packed, unit)
        lanes = min(MAX_LANES, round_up(widest[-1], LANES))
        most = MAX_WINDOW // (lanes + LANES) // granule * granule - granule
        rows = min(round_up(widest[-2], granule), most)
        room, leading = MAX_WINDOW // ((rows + granule) * (lanes + LANES)), []
        for t, p, w in zip(tiles[-3::-1], pieces[-3::-1], widest[-3::-1], strict=True):
            leading.append(WindowDim.of(t, p, chunk=max(min(w, room), 1)))
            room //= leading[-1].chunk
        dims = (
            *reversed(leading),
            WindowDim.of(tiles[-2], pieces[-2], unit, rows, granule),
            WindowDim.of(tiles[-1], pieces[-1], LANES, lanes, LANES),
        )
        return Windows(view, itemsize, dims, source_rows - tiles[-2].source.size)

    @property
    def unit(self) -> tuple[int, ...]:
        """The extents of a memory tile, 1 along untiled dimensions."""
        return tuple(dim.unit for dim in self.dims)

    @property
    def chunk(self) -> tuple[int, ...]:
        return tuple(dim.chunk for dim in self.dims)

    @property
    def tile(self) -> tuple[int, ...]:
        """The largest extents of tiles."""
        return tuple(int(dim.pieces.width.max()) for dim in self.dims)

    @property
    def window(self) -> tuple[int, ...]:
        return tuple(dim.window for dim in self.dims)

    @property
    def chunks(self) -> tuple[int, ...]:
        return tuple(dim.chunks for dim in self.dims)

    @property
    def stage(self) -> tuple[int, ...]:
        """The extents of the staging area. For 1-byte elements, a number of rows that is a multiple
        of 32 would be tiled differently from what units assume; the area then has one more unit of
        rows."""
        extents = [dim.stage for dim in self.dims]
        if len(extents) > 1 and tile_rows(extents[-2], self.itemsize) != self.unit[-2]:
            extents[-2] += self.unit[-2]
        return tuple(extents)

    @property
    def blocks(self) -> tuple[int, ...]:
        return tuple(dim.blocks for dim in self.dims)

    @property
    def meet(self) -> tuple[int, ...]:
        """The most source shards that a block overlaps, by tensor dimension."""
        return tuple(self.dims[self.view.index(axis)].meet for axis in range(len(self.view)))

    @property
    def rolled(self) -> tuple[int, ...]:
        """The dimensions, among rows and lanes, along which chunks are shifted."""
        axes = range(max(len(self.dims) - 2, 0), len(self.dims))
        return tuple(axis for axis in axes if self.dims[axis].rolled)

    @property
    def vmem_bytes(self) -> int:
        """The bytes of VMEM that a kernel needs: two windows, the chunks or blocks in flight, and
        the temporaries of a shift."""
        window, chunk = math.prod(self.window), math.prod(self.chunk)
        # 64-bit elements move as two successive halves.
        return (2 * window + SLOTS * chunk) * min(self.itemsize, 4) + 4 * TEMPORARIES * window

    def taken(self, axis: int, width: Integers) -> Integers:
        """Return the extents of pieces on the wire along a dimension, given their widths."""
        return self.dims[self.view.index(axis)].taken(width)

    def traffic(self, sums: Sums) -> tuple[int, int]:
        """Return the HBM bytes, over all devices, for sending chunks and for then assembling
        blocks."""
        dims = dict(zip(self.view, self.dims, strict=True))
        sent = sums.remote(lambda _, axis: dims[axis].sent())
        target = sums.exchange.target
        unpacked = (
            sums.remote(lambda _, axis: dims[axis].unpacked(from_stage=True))
            + sums.local(lambda _, axis: dims[axis].unpacked(from_stage=False))
            + math.prod(target.local_shape) * target.mesh.size
        )
        first = sent + sums.remote(lambda _, axis: dims[axis].staged())
        return self.itemsize * first + self._padded_rows(sums), self.itemsize * unpacked

    def figures(self, sums: Sums) -> Figures:
        dims = dict(zip(self.view, self.dims, strict=True))
        exchange, itemsize = sums.exchange, min(self.itemsize, 4)
        words = self.itemsize // itemsize
        into = sums.received(lambda _, axis: dims[axis].staged())
        wire = int(into.sum())
        chunks = sums.remote(lambda _, axis: dims[axis].cuts())
        blocks = math.prod(self.blocks) * exchange.target.mesh.size
        return Figures(
            wire_bytes=self.itemsize * wire,
            wire_max=self.itemsize * int(into.max()),
            exact_bytes=self.itemsize * sums.remote(width),
            hbm_bytes=sum(self.traffic(sums)),
            hbm_least=least_traffic(sums, self.itemsize),
            staging_bytes=self.itemsize * math.prod(self.stage) if wire else 0,
            vmem_bytes=self.vmem_bytes,
            chunks=words * (chunks + blocks),
            relayout_bytes=relayout(exchange, self.itemsize, self.view),
        )

    def _padded_rows(self, sums: Sums) -> int:
        """Return the HBM bytes, over all devices, of the copies that pad source shards with few
        rows."""
        if not self.few_rows:
            return 0
        layout, rows = sums.exchange.source, self.view[-2]
        shape = layout.local_shape
        more = tuple(s + self.few_rows * (axis == rows) for axis, s in enumerate(shape))
        copied = sum(padded_elements(s, self.view, self.itemsize) for s in (shape, more))
        return self.itemsize * copied * layout.mesh.size

    def moves(self, figures: Figures, exchange: Exchange, *, reduces: bool) -> Iterator[Stage]:
        sends, devices = partial(flows, exchange, self.itemsize, self.taken), exchange.ranks.size
        first, after = self.traffic(exchange.once(Sums))
        starts = figures.starts(devices)
        yield Sends("chunks of tiles", sends, first / devices, starts=starts)
        yield Copies(STAGED, after / devices)

    def prove(self, exchange: Exchange) -> None:
        expect(self.vmem_bytes <= VMEM_BYTES, f"windows take {self.vmem_bytes} bytes of VMEM")
        super().prove(exchange)

    def prove_dim(self, place: int, pieces: Pieces, tiles: DimTiles, about: str) -> None:
        prove_windows(self.dims[place], self.stage[place], pieces, tiles, about)

    def text(self, request: KernelRequest) -> KernelText:
        exchange, ends, moving = request.exchange, request.ends, Moving.of(request)
        program = ProgramText.of(self.name, ends, request.settings(sends=moving.sends))
        context = WindowsText.of(self, exchange, moving, program)
        integers = {"digits_of", "div", "is_full", "maximum", "minimum", "rem"}
        rounds = "floor_to" in " ".join(context.starts)
        staging = ("Chunk", *(("floor_to",) if rounds else ())) if moving.sends else ()
        calls = {
            "pallas_windows": (*STEPS, *staging),
            "pallas_shifts": ("fill", "merge") if moving.sends else ("merge",),
            "pallas_peers": tuple(integers | ({*SENDS, "multiple"} if moving.sends else set())),
        }
        libraries, more = ("jnp", "lax", "np", "pl", "pltpu"), (source_at(exchange),)
        return request.kernel(calls, libraries, printed("windows", context), functions=more)


FORM = Windows

STEPS = (
    "Part",
    "Tiling",
    "Windows",
    "cut",
    "in_int32",
    "moved_by",
    "units_at",
    "units_of",
    "within",
)
"""The names of `pallas_windows` that kernels of the windows form use."""


@dataclass(frozen=True)
class NestedDim:
    """A source dimension with a nested split into `parts` shards."""

    axis: int
    parts: int


@dataclass(frozen=True)
class TilingText:
    """The arguments of `Tiling` in the support module `pallas_windows`."""

    unit: tuple[int, ...]
    chunk: tuple[int, ...]
    window: tuple[int, ...]
    blocks: tuple[int, ...]
    meet: tuple[int, ...]
    chunks: tuple[int, ...]
    stage: tuple[int, ...]
    rolled: tuple[int, ...]
    more_rows: int


@dataclass(frozen=True)
class WindowsText:
    """The context of the two kernels of the windows form. `starts`: for each dimension, the offset
    to subtract from a piece's tensor indices to get its place in the staging area; `block_at`: the
    indices of a block's first element; `chunks`: the number of chunks of the largest tile;
    `visits`: the most parts that make up a block; `steps`: the most parts that make up the target
    shard of this device; `apart`: whether tiles are further apart in the staging area than in the
    target shard; `slots`: the most chunks in flight."""

    moving: Moving
    program: ProgramText
    tiling: TilingText
    widest_tile: str
    target_extents: str
    view: View
    starts: tuple[str, ...]
    block_at: str
    chunks: int
    visits: int
    steps: str
    nested: tuple[NestedDim, ...]
    apart: bool
    slots: int = SLOTS

    @property
    def rank(self) -> int:
        return len(self.view)

    @staticmethod
    def of(form: Windows, exchange: Exchange, moving: Moving, program: ProgramText) -> WindowsText:
        places = (f"block[{form.view.index(axis)}][0]" for axis in range(len(form.view)))
        visits = math.prod(form.meet) * moving.pieces
        steps, names = str(math.prod(form.blocks) * visits), moving.names
        if not exchange.same_order:  # none if the device is outside the target mesh
            steps = f"{names.peers}.counted(receiver, {names.target}, {steps})"
        dims = enumerate(exchange.source.dims)
        named = (field.name for field in fields(TilingText) if field.name != "more_rows")
        return WindowsText(
            moving=moving,
            program=program,
            tiling=TilingText(
                **{name: getattr(form, name) for name in named}, more_rows=form.few_rows
            ),
            widest_tile=by(form.tile),
            target_extents=by([exchange.target.local_shape[axis] for axis in form.view]),
            view=form.view,
            starts=tuple(_start(form, exchange, place) for place in range(len(form.view))),
            block_at=", ".join(places),
            chunks=math.prod(form.chunks),
            visits=visits,
            steps=steps,
            nested=tuple(NestedDim(axis, dim.parts) for axis, dim in dims if not dim.is_flat),
            apart=any(dim.step for dim in form.dims),
        )


def _start(form: Windows, exchange: Exchange, place: int) -> str:
    """Return the offset to subtract from a piece's tensor indices along a dimension to get its
    place in the staging area: its place in the target shard, rounded down to a unit, plus a step
    for each earlier piece."""
    axis, dim, rule = form.view[place], form.dims[place], exchange.rule
    low, start = f"box[{2 * axis}]", f"whole[{2 * axis}]"
    if dim.unit > 1:
        start = f"{low} - floor_to({low} - {start}, {dim.unit})"
    if not dim.step:
        return start
    before = f"(shard[{axis}] - met[{2 * axis}])"
    if rule.pieces > 1 and rule.cut == axis:
        before = f"({before} * {rule.pieces} + piece)"
    return f"{start} - {before} * {dim.step}"
