"""The template context of forwarding kernels: the schedule as literal tables, and the parts of
slots and shards that moves copy, as expressions of those tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import indent

from shardwright.codegen.backends.pallas_tpu.kernel_text import (
    KernelRequest,
    ProgramText,
    by,
    reach,
)
from shardwright.codegen.backends.pallas_tpu.routed.schedule import Push
from shardwright.codegen.backends.pallas_tpu.routed.slot import Shape
from shardwright.codegen.backends.pallas_tpu.routed.steps import Waits, waits_of
from shardwright.codegen.backends.pallas_tpu.routed.strategy import ForwardingForm
from shardwright.codegen.backends.pallas_tpu.routed.ways import Digits, Lines
from shardwright.codegen.text.context import constant_lines
from shardwright.codegen.text.python_text import INDENT, exploded, formatted


@dataclass(frozen=True)
class StepText:
    """The arguments of the support module's `Step`, in order."""

    turn: int
    way: tuple[int, int, int]
    first: int
    end: int
    chunk: int
    come: tuple[int, ...]
    left: tuple[int, ...]
    told: bool

    @staticmethod
    def of(form: ForwardingForm, waits: Waits) -> StepText:
        run, sends = waits.run, form.schedule.rounds[waits.run.turn].sends
        hops = [sent.hop for sent in sends for _ in sent.moves]
        begin = sum(len(each.moves) for each in form.schedule.rounds[: run.turn])
        hop = hops[run.first - begin]
        way = hop.stride, hop.extent, hop.by
        return StepText(run.turn, way, *run[1:], waits.come, waits.left, waits.told)


@dataclass(frozen=True)
class ForwardText:
    """The context that forwarding kernels share. In the kernel, the numbers of a move are a row of
    the table `moves` with `columns` columns.

    `part`: the part of a slot, or of the source shard, that a move copies, as an expression of its
    row; `shared`: whether some devices have no data for some offsets; `sends`, `gets`: the columns
    that then say whether this device sends and receives; `extent`, `unit`: the extent that a move
    copies along the first dimension, and a divisor of it, if moves are cut into chunks;
    `about_slot`, `about_offsets`, `about_moves`: texts for comments."""

    name: str
    slot: str
    kernel: str
    peers: str
    source: str
    target: str
    axes: str
    shape: tuple[int, ...]
    held: tuple[int, ...]
    dense: bool
    order: tuple[int, ...] | None
    digits: Digits
    lines: Lines
    offsets: str
    starts: str
    arrives: str
    moves: str
    steps: tuple[StepText, ...]
    slots: int
    halves: bool
    shared: bool
    columns: int
    sends: int
    gets: int
    chunks: int
    extent: str
    unit: int
    part: str
    about_slot: str
    about_offsets: str
    about_moves: str
    move_bytes: str
    whole_bytes: str

    @property
    def count(self) -> int:
        return len(self.steps)


@dataclass(frozen=True)
class RoutedText:
    """The context of the routed and spread forms. `window`: a shape in which every tile fits;
    `source_reach`, `target_reach`: the extents of shards, padded so that they contain every window;
    `source_extents`, `target_extents`: the extents of shards, for comments."""

    forward: ForwardText
    program: ProgramText
    window: Shape
    source_reach: Shape | None
    target_reach: Shape | None
    source_extents: str
    target_extents: str


@dataclass(frozen=True)
class Parts:
    """The parts of slots and shards that the moves of a form copy, as expressions."""

    form: ForwardingForm

    @property
    def first(self) -> int:
        """The column of a move's row that has the sent extent, after the columns of its places."""
        return 2 + self.form.schedule.halves

    @property
    def columns(self) -> int:
        """The number of columns before the starts of a move in shards."""
        return self.first + self.form.is_cut + 2 * self.form.schedule.is_shared

    @property
    def extent(self) -> str:
        """The extent that a move copies along the first dimension, as an expression; used only if
        moves are cut."""
        return f"moves[row + {self.first}]"

    def span(self) -> tuple[str, str]:
        """Return the start and size, as expressions, of the range that a move copies along the
        first dimension of a cut slot."""
        form = self.form
        begin, size = "moves[row + 2]" if form.schedule.halves else "", self.extent
        if form.chunks > 1:
            begin, size = f"{begin} + low" if begin else "low", "high - low"
        return _multiple(begin, form.slot.unit), _multiple(size, form.slot.unit)

    def part(self) -> list[str]:
        found = ["slice(None)"] * len(self.form.slot.shape)
        if self.form.is_cut:
            found[0] = f"pl.ds({', '.join(self.span())})"
        return found

    def inside(self, split: Sequence[int], first: int, *, whole: bool = False) -> list[str]:
        """Return the indices of the part of a shard that a move copies, or with `whole` of the
        whole box. `split`: the dimensions along which the shard has several boxes; a row has the
        box's starts along these from column `first` on."""
        shape = self.form.slot.shape
        found = ["slice(None)"] * len(shape) if whole else self.part()
        for column, axis in enumerate(split):
            begin, size = (
                f"multiple(moves[row + {first + column}], {shape[axis]})",
                str(shape[axis]),
            )
            if axis == 0 and self.form.is_cut and not whole:
                more, size = self.span()
                begin += f" + {more}"
            found[axis] = f"pl.ds({begin}, {size})"
        return found

    def split(self, local: tuple[int, ...]) -> list[int]:
        """Return the dimensions, in view order, along which a shard of shape `local` contains
        several boxes of the slot's shape."""
        pairs = zip(self.form.view, self.form.slot.shape, strict=True)
        return [place for place, (axis, own) in enumerate(pairs) if local[axis] != own]


def _multiple(index: str, unit: int) -> str:
    return f"multiple({index}, {unit})" if index and unit > 1 else index


def at(ref: str, items: list[str]) -> str:
    """Return the part of a buffer at these indices, as an expression."""
    while len(items) > 1 and items[-1] == "slice(None)":
        items = items[:-1]
    lines = exploded(f"{'.' * 24}{ref}.at", items, "[]")
    if len(lines) > 1:
        own = (indent(f"{formatted(item, 13, 12)},", INDENT) for item in items)
        lines = [lines[0], *own, lines[-1]]
    return "\n".join(lines).lstrip(".")


def packed_text(form: ForwardingForm, request: KernelRequest, program: ProgramText) -> RoutedText:
    """Return the context of a form whose slots XLA packs and unpacks."""
    exchange, parts = request.exchange, Parts(form)
    forward = forward_text(parts, 0, at("slots", ["slot", *parts.part()]), request)
    source, target = exchange.source.local_shape, exchange.target.local_shape
    reaches = reach(form.source_reach, source), reach(form.target_reach, target)
    return RoutedText(forward, program, form.window, *reaches, by(source), by(target))


def forward_text(parts: Parts, starts: int, part: str, request: KernelRequest) -> ForwardText:
    """Return the context that forwarding kernels share. `starts`: the number of a move's starts in
    shards; `part`: the part of a slot or source shard that a move copies, or "" for none."""
    form, ends = parts.form, request.ends
    schedule, slot, shared = form.schedule, form.slot, form.schedule.is_shared
    itemsize = min(form.itemsize, 4)  # 64-bit elements move as two halves
    nbytes = f"{math.prod(slot.shape) * itemsize:,}"
    named = ["from", "to", *(["begin"] if schedule.halves else [])]
    named += ["extent along 0"] * form.is_cut
    goes = "source shards go to" if form.spreads else "tiles go to"
    return ForwardText(
        name=ends.own("SCHEDULE"),
        slot=ends.own("SLOT"),
        kernel=ends.own("_kernel"),
        peers=ends.own("PEERS"),
        source=ends.said("source shard"),
        target=ends.said("target shard"),
        axes=request.host.program_axes,
        shape=slot.shape,
        held=slot.held,
        dense=slot.dense,
        order=slot.order if slot.turned else None,
        digits=form.digits,
        lines=form.lines,
        offsets=_listed(map(str, schedule.offsets)),
        starts=_listed(map(str, schedule.starts)) if shared else "None",
        arrives=_listed(map(str, schedule.arrives)),
        moves=_listed(str(_row(form, move)) for move in schedule.moves),
        steps=tuple(StepText.of(form, each) for each in waits_of(form)),
        slots=schedule.places,
        halves=schedule.halves,
        shared=shared,
        columns=parts.columns + starts,
        sends=parts.columns - 2,
        gets=parts.columns - 1,
        chunks=form.chunks,
        extent=parts.extent if form.chunks > 1 else "0",
        unit=slot.unit,
        part=part,
        about_slot=_about_slot(form),
        about_offsets=f"the devices are that {goes}",
        about_moves=f"Moves: {', '.join([*named, *(['number of the offset'] if shared else [])])}.",
        move_bytes=f"{'up to ' * form.is_cut}{nbytes} bytes of each",
        whole_bytes=nbytes,
    )


def _about_slot(form: ForwardingForm) -> str:
    slot = form.slot
    if slot.dense:
        granule = math.prod(slot.shape[1:])
        return f"Number of 512-byte granules in a slot: ceil({math.prod(slot.held)} / {granule})."
    return form.held


def _row(form: ForwardingForm, move: Push) -> tuple[int, ...]:
    schedule = form.schedule
    begin, extent = form.slot.part(move.halves)
    cut = (begin,) * schedule.halves + (extent,) * form.is_cut
    last = (move.number,) if schedule.is_shared else ()
    return move.here, move.there, *cut, *last


def _listed(items: Iterable[str]) -> str:
    lines = "\n".join(constant_lines("a" * 12, list(items)))
    return lines.removeprefix("a" * 12 + " = ").removesuffix("  # fmt: skip")
