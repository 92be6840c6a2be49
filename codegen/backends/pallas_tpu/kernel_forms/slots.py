"""The slots form, for thin tiles: XLA packs each tile densely into a slot and unpacks it on the
receiver."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from shardwright.codegen.backends.pallas_tpu.facts import FormFacts, Kernels
from shardwright.codegen.backends.pallas_tpu.figures import Figures, least_traffic, width
from shardwright.codegen.backends.pallas_tpu.form import Delivery, Form
from shardwright.codegen.backends.pallas_tpu.kernel_text import (
    SENDS,
    KernelRequest,
    KernelText,
    Moving,
    ProgramText,
    by,
    printed,
    reach,
)
from shardwright.codegen.backends.pallas_tpu.memory import (
    LANES,
    MAX_PACKED,
    default_view,
    padded_elements,
)
from shardwright.codegen.backends.pallas_tpu.pieces import Pieces, Sums, is_cut, reaches, widest
from shardwright.codegen.backends.pallas_tpu.proofs import fits_slots
from shardwright.codegen.backends.pallas_tpu.uniform import Uniform
from shardwright.codegen.moves.network.flows import flows
from shardwright.codegen.moves.network.timeline import Copies, Sends, Stage
from shardwright.codegen.text.index_functions import box_functions
from shardwright.codegen.text.python_text import called
from shardwright.ir.algebra.index import Integers
from shardwright.ir.algebra.printers import PALLAS
from shardwright.ir.exchange import Exchange
from shardwright.ir.tiles import DimTiles


@dataclass(frozen=True)
class Slots(Form):
    """The slots form of an exchange. A slot contains the rows of a tile contiguously, in granules
    of 512 bytes along an untiled dimension, so it needs no padding to memory tiles.

    `window`: a shape in which every tile fits; `packed`: the number of elements in 4 bytes;
    `granules`: the number of granules of a slot; `outgoing`, `incoming`: the most slots of a device
    along each dimension; `source_reach`, `target_reach`: the extents of shards, padded so that they
    contain every window; `pads`: whether the source shard is padded.
    """

    facts: ClassVar[FormFacts] = FormFacts(
        name="slots",
        rank=2,
        does="XLA packs thin tiles densely into slots, and unpacks them",
        kernels=Kernels(("kernel",), ("outgoing", "incoming", "slot_shape")),
        buffers="packed",
        support=("pallas_slots", "pallas_thin"),
    )
    window: tuple[int, ...]
    packed: int
    granules: int
    outgoing: tuple[int, ...]
    incoming: tuple[int, ...]
    source_reach: tuple[int, ...]
    target_reach: tuple[int, ...]
    pads: bool

    @classmethod
    def every(cls, delivery: Delivery) -> Iterator[Form]:
        form = Slots.of(delivery.exchange, delivery.itemsize)
        if math.prod(form.window) <= MAX_PACKED:
            yield form

    @staticmethod
    def of(exchange: Exchange, itemsize: int) -> Slots:
        axes = range(len(exchange.dims))
        window = tuple(widest(exchange, axis) for axis in axes)
        source_reach, target_reach = reaches(exchange, window)
        pieces = [exchange.rule.pieces if is_cut(exchange, axis) else 1 for axis in axes]
        packed = 4 // min(itemsize, 4)
        return Slots(
            view=tuple(axes),
            itemsize=itemsize,
            window=window,
            packed=packed,
            granules=-(-math.prod(window) // (packed * LANES)),
            outgoing=tuple(exchange.dims[a].max_peers_of_source * pieces[a] for a in axes),
            incoming=tuple(exchange.dims[a].max_peers_of_target * pieces[a] for a in axes),
            source_reach=source_reach,
            target_reach=target_reach,
            pads=source_reach != exchange.source.local_shape,
        )

    def traffic(self, sums: Sums) -> tuple[int, int, int]:
        """Return the HBM bytes, over all devices, for packing, for sending slots, and for
        unpacking."""
        slot, window = self.granules * self.packed * LANES, self._padded(self.window)
        source, target = sums.exchange.source, sums.exchange.target
        packed = math.prod(self.outgoing) * (window + 2 * slot) * source.mesh.size
        packed += self._padded(source.local_shape) * source.mesh.size if self.pads else 0
        unpacked = math.prod(self.incoming) * (slot + 2 * window) * target.mesh.size
        unpacked += 2 * self._padded(self.target_reach) * target.mesh.size
        sent = 2 * (sums.remote(self._sent) + sums.local(self._sent))
        return self.itemsize * packed, self.itemsize * sent, self.itemsize * unpacked

    def figures(self, sums: Sums) -> Figures:
        """Return the form's traffic, assuming that XLA reads and writes each window and slot once
        and uses its default layouts for shards and windows."""
        exchange, itemsize = sums.exchange, self.itemsize
        into = sums.received(self._sent)
        slot = self.granules * self.packed * LANES
        source, target = exchange.source, exchange.target
        outgoing, incoming = math.prod(self.outgoing), math.prod(self.incoming)
        return Figures(
            wire_bytes=itemsize * int(into.sum()),
            wire_max=itemsize * int(into.max()),
            exact_bytes=itemsize * sums.remote(width),
            hbm_bytes=sum(self.traffic(sums)),
            hbm_least=least_traffic(sums, itemsize),
            staging_bytes=itemsize * slot * (outgoing + incoming),
            chunks=2 * (outgoing * source.mesh.size + incoming * target.mesh.size),
        )

    def _sent(self, pieces: Pieces, axis: int) -> Integers:
        return self.taken(axis, pieces.width)

    def taken(self, axis: int, width: Integers) -> Integers:
        """Return each piece's factor in the number of elements that its tile puts on the wire. A
        tile's rows are sent with the window's width, so the factors of the first dimension count
        all elements, and the other factors are 1."""
        if axis:
            return 0 * width + 1
        inner = math.prod(self.window[1:])
        unit = self.packed * LANES
        elements: Integers = -(-(width * inner) // unit) * unit
        return elements

    def _padded(self, shape: tuple[int, ...]) -> int:
        return padded_elements(shape, default_view(shape, self.itemsize), self.itemsize)

    def moves(self, figures: Figures, exchange: Exchange, *, reduces: bool) -> Iterator[Stage]:
        sends, devices = partial(flows, exchange, self.itemsize, self.taken), exchange.ranks.size
        first, within, after = self.traffic(exchange.once(Sums))
        starts = figures.starts(devices)
        yield Copies("XLA packs slots", first / devices)
        yield Sends("slots by DMA", sends, within / devices, starts=starts)
        yield Copies("XLA unpacks slots", after / devices)

    def prove_dim(self, place: int, pieces: Pieces, tiles: DimTiles, about: str) -> None:
        fits_slots(self.window[place], self.target_reach[place], pieces, about)

    def text(self, request: KernelRequest) -> KernelText:
        """Return the text of the kernel, by the template of its own name or, if all tiles have the
        same shape, by `thin.py.jinja`."""
        exchange, ends, axes = request.exchange, request.ends, request.host.program_axes
        uniform = Uniform.of(exchange, self.view, self.itemsize, axes, ends)
        if uniform is not None and uniform.sends:
            return _thin(request, (self.granules, self.packed, LANES), uniform)
        moving = Moving.of(request)
        settings = request.settings(sends=moving.sends, packed=True)
        program = ProgramText.of(self.name, ends, settings)
        calls = {
            "pallas_dense": ("Dense",),
            "pallas_slots": ("Slots", "slot_number"),
            "pallas_own": ("kept_by",) if moving.keeps else (),
            "pallas_peers": ("div", "maximum", "operand", *(SENDS if moving.sends else ())),
        }
        kernels = printed("slots", SlotsText.of(self, exchange, moving, program))
        return request.kernel(calls, ("pl", "pltpu"), kernels)


FORM = Slots


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
    source_reach: tuple[int, ...] | None
    target_reach: tuple[int, ...] | None
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
            source_reach=reach(form.source_reach, exchange.source.local_shape),
            target_reach=reach(form.target_reach, exchange.target.local_shape),
            source_extents=by(exchange.source.local_shape),
            target_extents=by(exchange.target.local_shape),
        )


def _thin(request: KernelRequest, shape: tuple[int, int, int], uniform: Uniform) -> KernelText:
    text, ends = uniform.thin(shape), request.ends
    given = [text.kernel, text.moved, ends.own("PEERS"), f"{text.name}SLOT"]
    given += request.settings(sends=uniform.sends, packed=True)
    place = PALLAS.calls(uniform.place)
    return KernelText(
        functions=ends.named(request.exchange.once(box_functions)),
        calls={
            "pallas_peers": (*uniform.calls, *place, "operand"),
            "pallas_permuted": ("Permuted",),
            "pallas_thin": ("Thin",),
        },
        libraries=uniform.libraries | {"jnp", "np"},
        made=tuple(called(f"{ends.program} = Thin", given)),
        moves=tuple(uniform.peers_lines()),
        positions=uniform.functions,
        kernels=printed("thin", text),
    )
