"""The kernels of forwarding forms: their stages, proofs and text."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from functools import partial

import numpy as np

from shardwright.codegen.backends.pallas_tpu.figures import Figures
from shardwright.codegen.backends.pallas_tpu.kernel_text import (
    SENDS,
    KernelRequest,
    KernelText,
    ProgramText,
    printed,
)
from shardwright.codegen.backends.pallas_tpu.pieces import Pieces
from shardwright.codegen.backends.pallas_tpu.proofs import expect, fits_slots
from shardwright.codegen.backends.pallas_tpu.routed.docstring import route_facts
from shardwright.codegen.backends.pallas_tpu.routed.grid import numbered, sent_tiles
from shardwright.codegen.backends.pallas_tpu.routed.schedule import fault
from shardwright.codegen.backends.pallas_tpu.routed.steps import steps_of
from shardwright.codegen.backends.pallas_tpu.routed.strategy import ForwardingForm
from shardwright.codegen.moves.network.timeline import Copies, Sends, Stage
from shardwright.ir.algebra.index import Integers
from shardwright.ir.exchange import Exchange
from shardwright.ir.tiles import DimTiles


class ForwardingKernel(ForwardingForm):
    """The kernel of a forwarding form. A subclass states its schedules, what must hold of their
    places, and the context of its template."""

    @property
    def template(self) -> str:
        """The name of the template, by default that of the form."""
        return self.name

    @abstractmethod
    def context(self, request: KernelRequest, program: ProgramText) -> object:
        """Return the context of the template."""

    def prove_places(self, exchange: Exchange, widths: Integers) -> None:
        """Raise InternalError if a place cannot hold its data; `widths`: the extents of the tiles
        that devices send."""
        if not self.spreads:
            fits = self.slot.holds and bool((widths <= self.slot.held).all())
            self.expect(fits, "the part of a slot that is sent is smaller than a tile")

    def expect(self, holds: bool, message: str) -> None:
        """Raise InternalError with a message about the form unless a property holds."""
        expect(holds, f"{self.name} form: {message}")

    def moves(self, figures: Figures, exchange: Exchange, *, reduces: bool) -> Iterator[Stage]:
        """Yield XLA's packing, one stage per round, and XLA's unpacking. Without packing, devices
        copy the data that they keep in the first round."""
        ids = numbered(exchange)
        rest = figures.hbm_bytes - 2 * self.itemsize * self.sent
        if not self.in_place:
            yield Copies("XLA packs slots and unpacks them", rest / ids.size)
        for turn, steps in enumerate(steps_of(self, ids)):
            parts = tuple(step.flows for step in steps)
            sent = sum(float(part.weight.sum()) for part in parts)
            more = rest if self.in_place and turn == 0 else 0
            what = f"round {turn + 1} of {len(self.schedule.rounds)}"
            starts = figures.starts(ids.size) / len(self.schedule.rounds)
            yield Sends(what, partial(tuple, parts), (2 * sent + more) / ids.size, steps, starts)
        if self.in_place and not reduces:
            yield self.result(exchange)

    def prove(self, exchange: Exchange) -> None:
        wrong = fault(self.schedule, self.digits, spreads=self.spreads)
        self.expect(not wrong, wrong)
        sender, receiver, widths = exchange.once(sent_tiles)
        offsets = np.array(self.schedule.offsets)
        over = self.numbering.offsets(sender, receiver)
        numbers = np.minimum(np.searchsorted(offsets, over), offsets.size - 1)
        known = bool((offsets[numbers] == over).all())
        self.expect(known, "a tile goes over an offset that has no slot")
        self.prove_places(exchange, widths)
        mixes = self.schedule.is_shared and self.schedule.mixes()
        self.expect(not mixes, "one send mixes halves of two tiles")
        super().prove(exchange)

    def prove_dim(self, place: int, pieces: Pieces, tiles: DimTiles, about: str) -> None:
        axis = self.view[place]
        fits_slots(self.window[axis], self.target_reach[axis], pieces, about)

    def text(self, request: KernelRequest) -> KernelText:
        # For these programs powers_of_two=True is the default.
        settings = [] if request.powers_of_two else ["powers_of_two=False"]
        common = request.settings(sends=request.sends, packed=not self.in_place)
        settings += [each for each in common if each != "powers_of_two=True"]
        program = ProgramText.of(self.name, request.ends, settings)
        (lines,) = kernels = printed(self.template, self.context(request, program))
        text = "\n".join(lines)
        integers = (name for name in ("div", "multiple") if f"{name}(" in text)
        (home,) = self.facts.support
        dense = self.slot.dense and not self.in_place
        stored = {"pallas_dense": ("Dense",)} if dense else {"pallas_ordered": ("Slot",)}
        calls = {
            **stored,
            home: (program.form,),
            "pallas_steps": ("Schedule", "Step", "hop"),
            "pallas_peers": (*(set(SENDS) - {"far_apart"}), *integers),
        }
        more = ("jnp",) if self.lines else ()
        return request.kernel(calls, ("lax", "np", "pl", "pltpu", *more), kernels)

    def route_facts(self, seconds: float, straight: float | None) -> Iterator[str]:
        yield from route_facts(self, seconds, straight)
