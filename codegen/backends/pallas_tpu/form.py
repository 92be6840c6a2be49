"""What each form of the TPU kernel does: the protocol of the files in `kernel_forms/`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from shardwright.codegen.backends.pallas_tpu.facts import FormFacts
from shardwright.codegen.backends.pallas_tpu.figures import Figures
from shardwright.codegen.backends.pallas_tpu.kernel_text import KernelRequest, KernelText
from shardwright.codegen.backends.pallas_tpu.memory import View
from shardwright.codegen.backends.pallas_tpu.pieces import Pieces, Sums
from shardwright.codegen.backends.pallas_tpu.routed.grid import Grid
from shardwright.codegen.moves.network.timeline import Copies, Stage
from shardwright.ir.exchange import Exchange
from shardwright.ir.tiles import DimTiles


@dataclass(frozen=True)
class Delivery:
    """The tiles that a kernel must move. `itemsize`: the bytes of an element; a 64-bit element
    travels as two of 32 bits. `grid`: the devices, if they must forward tiles."""

    exchange: Exchange
    itemsize: int
    grid: Grid | None = None

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """The offsets over which the devices of the grid send."""
        assert self.grid is not None
        return self.grid.offsets(self.exchange)

    @cached_property
    def senders(self) -> tuple[tuple[int, ...], ...]:
        """The senders over each offset, or nothing if all devices send over all offsets."""
        assert self.grid is not None
        return self.grid.senders(self.exchange)


@dataclass(frozen=True)
class Form(ABC):
    """A form of the kernel that moves an exchange. `view`: the order of dimensions in the kernel;
    `itemsize`: the bytes of an element."""

    facts: ClassVar[FormFacts]
    view: View
    itemsize: int

    @property
    def name(self) -> str:
        return self.facts.name

    @property
    def kind(self) -> tuple[object, ...]:
        """What the kernels of two plans of one bundle have in common where possible."""
        return self.name, self.view

    @classmethod
    @abstractmethod
    def every(cls, delivery: Delivery) -> Iterator[Form]:
        """Yield the kernels of this form that can make a delivery. A form that forwards is asked
        only for deliveries with a grid, and any other form only for deliveries without."""

    @abstractmethod
    def figures(self, sums: Sums) -> Figures:
        """Return the form's traffic."""

    def stages(self, figures: Figures, exchange: Exchange, *, reduces: bool) -> Iterator[Stage]:
        """Yield the timeline's stages for the kernel, and for XLA's copies around it. HBM traffic
        is the average over devices. `reduces`: whether the tiles are terms, so that XLA reduces the
        kernel's result instead of copying it."""
        if figures.relayout_bytes:
            yield Copies("XLA lays shards out", figures.relayout_bytes / exchange.ranks.size)
        yield from self.moves(figures, exchange, reduces=reduces)

    @abstractmethod
    def moves(self, figures: Figures, exchange: Exchange, *, reduces: bool) -> Iterator[Stage]:
        """Yield the stages in which the form moves the tiles; see `stages`."""

    def result(self, exchange: Exchange) -> Copies:
        """Return the stage in which XLA copies a result that the kernel wrote."""
        nbytes = self.itemsize * math.prod(exchange.target.local_shape)
        return Copies("XLA copies a result that leaves the program", 2 * nbytes, leaving=True)

    def prove(self, exchange: Exchange) -> None:
        """Raise InternalError if any property that `proofs.py` lists fails."""
        sums = exchange.once(Sums)
        for place, axis in enumerate(self.view):
            about = f"{self.name} form, dimension {axis}"
            self.prove_dim(place, sums.pieces[axis], exchange.dims[axis], about)

    @abstractmethod
    def prove_dim(self, place: int, pieces: Pieces, tiles: DimTiles, about: str) -> None:
        """Raise InternalError if a property of the dimension at `place` of the view fails. `about`:
        the form and the dimension, for messages."""

    @abstractmethod
    def text(self, request: KernelRequest) -> KernelText:
        """Return the text of the form's kernels."""

    def like(self, other: Form) -> Form:
        """Return this form with the options of a form of another plan, as far as it has them."""
        return self

    def route_facts(self, seconds: float, straight: float | None) -> Iterator[str]:
        """Yield the docstring's lines about the routes of tiles, if devices forward them;
        `straight`: see `strategy.FormChoice`."""
        yield from ()
