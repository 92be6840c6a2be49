"""The direct form: every tile is aligned, so a DMA copies it from the source shard straight into
the target shard."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from shardwright.codegen.backends.pallas_tpu.facts import FormFacts, Kernels
from shardwright.codegen.backends.pallas_tpu.figures import Figures, least_traffic, width
from shardwright.codegen.backends.pallas_tpu.memory import FLAT_UNIT, LANES, View
from shardwright.codegen.backends.pallas_tpu.pieces import Pieces, Sums, covered
from shardwright.codegen.text.index_functions import IndexFunction
from shardwright.ir.algebra.index import Integers
from shardwright.ir.errors import InternalError
from shardwright.ir.exchange import Exchange


def divisors(exchange: Exchange) -> tuple[int, ...]:
    """Return, for each dimension, a common divisor of the starts and widths of all its pieces
    within their shards.

    Raises InternalError if a start or width is not a multiple of the divisor. Neither the
    interpreter nor the compiler would detect that fault.
    """
    found = []
    for axis, tiles in enumerate(exchange.dims):
        divisor = math.gcd(tiles.grain, tiles.source.extent)
        if exchange.rule.pieces > 1 and axis == exchange.rule.cut:
            divisor = math.gcd(divisor, exchange.rule.unit)
        for ends in (tiles.pairs.low, tiles.pairs.high):
            if (ends % divisor).any():
                raise InternalError(f"dimension {axis}: a tile is not a multiple of {divisor}")
        found.append(divisor)
    return tuple(found)


@dataclass(frozen=True)
class Direct:
    """The direct form of an exchange. `divisors`: common divisors of the starts and widths of
    tiles, by dimension in view order; `short`: whether some target shards are smaller than
    others."""

    facts: ClassVar[FormFacts] = FormFacts(
        name="direct",
        does="tiles go by DMA from shard to shard",
        kernels=Kernels(("kernel",), ()),
        buffers="shards",
        in_place=True,
    )
    view: View
    itemsize: int
    divisors: tuple[int, ...]
    short: bool

    @property
    def name(self) -> str:
        return self.facts.name

    @staticmethod
    def of(exchange: Exchange, itemsize: int, view: View) -> Direct | None:
        """Return the form, or None if any tile is not aligned to memory tiles."""
        known = exchange.once(divisors)
        tiled = tuple(zip(view[-2:], tiling(itemsize, len(view)), strict=True))
        if not all(known[a] % unit == 0 or _is_whole(exchange, a) for a, unit in tiled):
            return None
        short = any(not dim.is_even for dim in exchange.target.dims)
        return Direct(view, itemsize, tuple(known[axis] for axis in view), short)

    def functions(self, exchange: Exchange) -> tuple[IndexFunction, ...]:
        """Return an empty tuple: this form needs only the common index functions."""
        return ()

    def taken(self, axis: int, width: Integers) -> Integers:
        """Return the extents of pieces on the wire along a dimension, given their widths."""
        units = dict(zip(self.view[-2:], tiling(self.itemsize, len(self.view)), strict=True))
        return covered(0 * width, width, units.get(axis, 1))

    def figures(self, sums: Sums) -> Figures:
        """Return the form's traffic. If some target shards are short, XLA zeroes their padding, so
        every shard is read and written once more."""

        def padded(pieces: Pieces, axis: int) -> Integers:
            return self.taken(axis, pieces.width)

        exchange, itemsize = sums.exchange, self.itemsize
        into = sums.received(padded)
        target = math.prod(exchange.target.local_shape) * exchange.target.mesh.size
        moved = 2 * (int(into.sum()) + sums.local(padded)) + (2 * target if self.short else 0)
        return Figures(
            wire_bytes=itemsize * int(into.sum()),
            wire_max=itemsize * int(into.max()),
            exact_bytes=itemsize * sums.remote(width),
            hbm_bytes=itemsize * moved,
            hbm_least=least_traffic(sums, itemsize),
        )


def tiling(itemsize: int, rank: int) -> tuple[int, ...]:
    """Return the extents of a memory tile over the last dimensions. For 1-byte elements, return the
    coarsest tiling that a TPU may choose."""
    rows = 32 if itemsize == 1 else 8
    return (FLAT_UNIT * rows // 8,) if rank == 1 else (rows, LANES)


def _is_whole(exchange: Exchange, axis: int) -> bool:
    tiles = exchange.dims[axis]
    cut = exchange.rule.pieces > 1 and axis == exchange.rule.cut
    return tiles.source.parts == tiles.target.parts == 1 and not cut
