"""The template context of kernels whose devices compute their sends with `Peers`: the windows and
slots forms, and the direct form if devices have different tiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from shardwright.codegen.backends.pallas_tpu.direct import Direct
from shardwright.codegen.backends.pallas_tpu.memory import LANES, View
from shardwright.codegen.backends.pallas_tpu.slots import Slots
from shardwright.codegen.backends.pallas_tpu.terms import KernelEnds
from shardwright.codegen.backends.pallas_tpu.uniform import ThinText
from shardwright.codegen.backends.pallas_tpu.windows import SLOTS, Windows
from shardwright.codegen.text.templates import render
from shardwright.ir.exchange import Exchange

Lines = tuple[str, ...]


@dataclass(frozen=True)
class KernelNames:
    """The names in a kernel's text: constants, functions, and the boxes of both sides."""

    peers: str
    slot: str
    tiling: str
    view: str
    divisors: str
    source_shard: str
    target_shard: str
    senders: str
    receivers: str
    source_at: str
    at: str
    viewed: str
    staged: str
    part_of: str
    kernel: str
    push_kernel: str
    unpack_kernel: str
    source_box: str
    target_box: str
    target: str

    @staticmethod
    def of(ends: KernelEnds) -> KernelNames:
        constants = ("PEERS", "SLOT", "TILING", "VIEW", "DIVISORS")
        functions = ("source_shard", "target_shard", "senders", "receivers", "source_at")
        own = ("at", "viewed", "staged", "part_of", "kernel", "push_kernel", "unpack_kernel")
        return KernelNames(
            **{name.lower(): ends.own(name) for name in constants},
            **{name: ends.own(name) for name in functions},
            **{name: ends.own(f"_{name}") for name in own},
            source_box=ends.source_box,
            target_box=ends.target_box,
            target=ends.target,
        )


@dataclass(frozen=True)
class Moving:
    """The context that all kernels share. `source`, `target`: the phrases for a device's source and
    target shard; `sends`: whether anything is sent; `keeps`: whether any device already has a part
    of its target shard; `pieces`: the number of pieces of a tile, each sent by a different
    device."""

    names: KernelNames
    source: str
    target: str
    sends: bool
    keeps: bool
    pieces: int

    @staticmethod
    def of(exchange: Exchange, ends: KernelEnds, *, sends: bool, keeps: bool) -> Moving:
        sides = ends.said("source shard"), ends.said("target shard")
        return Moving(KernelNames.of(ends), *sides, sends, keeps, exchange.rule.pieces)


@dataclass(frozen=True)
class Setting:
    """A keyword argument of a program: its name and its expression."""

    name: str
    value: str


@dataclass(frozen=True)
class ProgramText:
    """The object that runs the kernels of a form: its name, class and keyword arguments."""

    name: str
    form: str
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class DirectText:
    """The context of a direct kernel. `shard_bytes`: the bytes of a target shard, for a comment."""

    moving: Moving
    view: View
    divisors: tuple[int, ...]
    shard_bytes: str

    @staticmethod
    def of(form: Direct, exchange: Exchange, moving: Moving) -> DirectText:
        """Return the context of a kernel. 64-bit elements move as two successive halves, so
        `shard_bytes` is then the size of one half."""
        elements = math.prod(exchange.target.local_shape)
        nbytes = f"{elements * min(form.itemsize, 4):,}"
        return DirectText(moving, form.view, form.divisors, nbytes)


@dataclass(frozen=True)
class SlotsText:
    """The context of a slots kernel. `numbers`: the numbers of a tile's pieces; `elements`: the
    number of elements of the largest tile; `inner`: how many of them each index of the first
    dimension has; `granule`: the number of elements in 512 bytes; `outgoing`, `incoming`: the most
    tiles that a device sends and receives."""

    moving: Moving
    program: ProgramText
    numbers: tuple[int, ...]
    shape: tuple[int, ...]
    window: tuple[int, ...]
    elements: int
    inner: int
    granule: int
    outgoing: int
    incoming: int
    outgoing_tiles: str
    incoming_tiles: str
    source_reach: tuple[int, ...]
    target_reach: tuple[int, ...]
    source_extents: str
    target_extents: str

    @staticmethod
    def of(form: Slots, exchange: Exchange, moving: Moving, program: ProgramText) -> SlotsText:
        return SlotsText(
            moving=moving,
            program=program,
            numbers=tuple(range(moving.pieces)),
            shape=(form.granules, form.packed, LANES),
            window=form.window,
            elements=math.prod(form.window),
            inner=math.prod(form.window[1:]),
            granule=form.packed * LANES,
            outgoing=math.prod(form.outgoing),
            incoming=math.prod(form.incoming),
            outgoing_tiles=by(form.outgoing),
            incoming_tiles=by(form.incoming),
            source_reach=form.source_reach,
            target_reach=form.target_reach,
            source_extents=by(exchange.source.local_shape),
            target_extents=by(exchange.target.local_shape),
        )


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
    `visits`: the most parts that make up a block; `steps`: the most parts that make up a target
    shard; `apart`: whether tiles are further apart in the staging area than in the target shard;
    `slots`: the most chunks in flight."""

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
    steps: int
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
            steps=math.prod(form.blocks) * visits,
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


def by(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))


def printed(
    form: str, context: DirectText | SlotsText | WindowsText | ThinText
) -> tuple[Lines, ...]:
    """Render a form's template. Return its one function, as a tuple of its lines."""
    return (tuple(render(f"pallas_tpu/{form}.py.jinja", context).splitlines()),)
