"""The timeline's stages for a TPU kernel of any form, and for XLA's copies around it.

HBM traffic is the average over devices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import assert_never

from shardwright.codegen.backends.pallas_tpu.direct import Direct
from shardwright.codegen.backends.pallas_tpu.figures import Figures
from shardwright.codegen.backends.pallas_tpu.pieces import Sums
from shardwright.codegen.backends.pallas_tpu.routed.grid import numbered
from shardwright.codegen.backends.pallas_tpu.routed.steps import steps_of
from shardwright.codegen.backends.pallas_tpu.routed.strategy import Routed
from shardwright.codegen.backends.pallas_tpu.slots import Slots
from shardwright.codegen.backends.pallas_tpu.windows import Windows
from shardwright.codegen.moves.network.flows import flows
from shardwright.codegen.moves.network.timeline import Copies, Sends, Stage
from shardwright.ir.algebra.index import Integers
from shardwright.ir.exchange import Exchange

Form = Direct | Windows | Slots | Routed

STAGED = "the result from the staging area"
"""The name of the copy that the kernel makes once all chunks have arrived."""
CHUNK_SECONDS = 1e-8
"""The fixed cost of a chunk, in seconds. Its DMAs take some 100 ns to start, mostly hidden behind
others in flight. Source: an estimate, not timed on a TPU."""


def stages_of(
    form: Form, figures: Figures, exchange: Exchange, *, reduces: bool
) -> Iterator[Stage]:
    """Yield the stages in which a form moves the tiles of an exchange; `reduces`: whether the tiles
    are terms, so that XLA reduces the kernel's result instead of copying it."""
    sums, devices = exchange.once(Sums), exchange.ranks.size
    if figures.relayout_bytes:
        yield Copies("XLA lays shards out", figures.relayout_bytes / devices)
    match form:
        case Direct() | Windows() | Slots():
            yield from _sent(form, figures, sums, devices, reduces=reduces)
        case Routed():
            yield from _routed(form, figures, numbered(exchange))
            if form.in_place and not reduces:
                yield _result(form, exchange)
        case _:
            assert_never(form)


def _sent(
    form: Direct | Windows | Slots, figures: Figures, sums: Sums, devices: int, *, reduces: bool
) -> Iterator[Stage]:
    exchange, itemsize = sums.exchange, form.itemsize
    sends, starts = partial(flows, exchange, itemsize, form.taken), _starts(figures, devices)
    match form:
        case Direct():
            yield Sends("tiles by DMA", sends, figures.hbm_bytes / devices, starts=starts)
            if figures.wire_bytes and not reduces:
                yield _result(form, exchange)
        case Windows():
            first, after = form.traffic(sums)
            yield Sends("chunks of tiles", sends, first / devices, starts=starts)
            yield Copies(STAGED, after / devices)
        case Slots():
            first, within, after = form.traffic(sums)
            yield Copies("XLA packs slots", first / devices)
            yield Sends("slots by DMA", sends, within / devices, starts=starts)
            yield Copies("XLA unpacks slots", after / devices)
        case _:
            assert_never(form)


def _starts(figures: Figures, devices: int) -> float:
    return CHUNK_SECONDS * figures.chunks / devices


def _result(form: Direct | Routed, exchange: Exchange) -> Copies:
    nbytes = form.itemsize * math.prod(exchange.target.local_shape)
    return Copies("XLA copies a result that leaves the program", 2 * nbytes, leaving=True)


def _routed(form: Routed, figures: Figures, ids: Integers) -> Iterator[Stage]:
    """Yield the stages of a forwarding form: XLA's packing, one stage per round, and XLA's
    unpacking. Without packing, devices copy the data that they keep in the first round."""
    rest = figures.hbm_bytes - 2 * form.itemsize * form.sent
    if not form.in_place:
        yield Copies("XLA packs slots and unpacks them", rest / ids.size)
    for turn, steps in enumerate(steps_of(form, ids)):
        parts = tuple(step.flows for step in steps)
        sent = sum(float(part.weight.sum()) for part in parts)
        more = rest if form.in_place and turn == 0 else 0
        what = f"round {turn + 1} of {len(form.schedule.rounds)}"
        starts = _starts(figures, ids.size) / len(form.schedule.rounds)
        yield Sends(what, partial(tuple, parts), (2 * sent + more) / ids.size, steps, starts)
