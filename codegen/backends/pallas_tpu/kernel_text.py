"""What the templates are given of kernels whose devices find what they send by `Peers`: the direct
form of tiles of any extents, windows and slots."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shardwright.codegen.backends.pallas_tpu.direct import Direct
from shardwright.codegen.backends.pallas_tpu.memory import LANES, View
from shardwright.codegen.backends.pallas_tpu.slots import Slots
from shardwright.codegen.backends.pallas_tpu.terms import KernelEnds
from shardwright.codegen.backends.pallas_tpu.windows import SLOTS, Windows
from shardwright.codegen.emit.templates import render
from shardwright.ir.exchange import Exchange

Lines = tuple[str, ...]


@dataclass(frozen=True)
class KernelNames:
    """What a module calls what is of a kernel."""

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
        """Return the names that a module has for both ends of a kernel."""
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
    """What all kernels are given. `source`, `target`: what a device holds on either side, in words;
    `sends`: whether anything is sent; `keeps`: whether any device holds a part of its own target
    shard; `pieces`: of each tile, of which each is sent by another device."""

    names: KernelNames
    source: str
    target: str
    sends: bool
    keeps: bool
    pieces: int

    @staticmethod
    def of(exchange: Exchange, ends: KernelEnds, *, sends: bool, keeps: bool) -> Moving:
        """Return what moves of an exchange."""
        sides = ends.said("source shard"), ends.said("target shard")
        return Moving(KernelNames.of(ends), *sides, sends, keeps, exchange.rule.pieces)


@dataclass(frozen=True)
class DirectText:
    """A kernel of the direct form. `shard_bytes`: of a target shard, for comments."""

    moving: Moving
    view: View
    divisors: tuple[int, ...]
    shard_bytes: str

    @staticmethod
    def of(form: Direct, exchange: Exchange, moving: Moving) -> DirectText:
        """Return the context of a form. 64-bit elements are moved in two halves, one after the
        other."""
        elements = math.prod(exchange.target.local_shape)
        nbytes = f"{elements * min(form.itemsize, 4):,}"
        return DirectText(moving, form.view, form.divisors, nbytes)


@dataclass(frozen=True)
class SlotsText:
    """A kernel of slots. `numbers`: of the pieces of a tile; `inner`: elements of a tile beside its
    extent along the first dimension; `granule`: elements of 512 bytes."""

    moving: Moving
    numbers: tuple[int, ...]
    inner: int
    granule: int

    @staticmethod
    def of(form: Slots, moving: Moving) -> SlotsText:
        """Return the context of a form."""
        inner, granule = math.prod(form.window[1:]), form.packed * LANES
        return SlotsText(moving, tuple(range(moving.pieces)), inner, granule)


@dataclass(frozen=True)
class NestedDim:
    """A dimension with a nested split into so many source shards."""

    axis: int
    parts: int


@dataclass(frozen=True)
class WindowsText:
    """Both kernels of windows. `starts`: for each dimension what is taken off tensor indices of a
    piece for its place in the staging area; `block_at`: the first element of a block; `chunks`: of
    the largest tile; `visits`: how many parts a block may consist of, `steps` how many those of a
    target shard; `apart`: whether tiles stand further in the staging area for each before;
    `slots`: of chunks in flight."""

    moving: Moving
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
        """How many dimensions there are."""
        return len(self.view)

    @staticmethod
    def of(form: Windows, exchange: Exchange, moving: Moving) -> WindowsText:
        """Return the context of a form."""
        places = (f"block[{form.view.index(axis)}][0]" for axis in range(len(form.view)))
        visits = math.prod(form.meet) * moving.pieces
        dims = enumerate(exchange.source.dims)
        return WindowsText(
            moving=moving,
            view=form.view,
            starts=tuple(_start(form, exchange, place) for place in range(len(form.view))),
            block_at=", ".join(places),
            chunks=math.prod(form.chunks),
            visits=visits,
            steps=math.prod(form.blocks) * visits,
            nested=tuple(NestedDim(axis, dim.parts) for axis, dim in dims if not dim.is_flat),
            apart=any(form.step),
        )


def _start(form: Windows, exchange: Exchange, place: int) -> str:
    """Return what is taken off indices of a piece along a dimension for its place in the staging
    area: there it lies as in the target shard, rounded down to a unit, and so much further for each
    piece before it."""
    axis, dim, rule = form.view[place], form.dims[place], exchange.rule
    low, start = f"box[{2 * axis}]", f"within[{2 * axis}]"
    if dim.unit > 1:
        start = f"{low} - floor_to({low} - {start}, {dim.unit})"
    if not dim.step:
        return start
    before = f"(shard[{axis}] - met[{2 * axis}])"
    if rule.pieces > 1 and rule.cut == axis:
        before = f"({before} * {rule.pieces} + piece)"
    return f"{start} - {before} * {dim.step}"


def printed(form: str, context: DirectText | SlotsText | WindowsText) -> tuple[Lines, ...]:
    """Return the text of a kernel."""
    return (tuple(render(f"pallas_tpu/{form}.py.jinja", context).splitlines()),)
