"""The direct form: every tile is aligned, so a DMA copies it from the source shard straight into
the target shard."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
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
    printed,
)
from shardwright.codegen.backends.pallas_tpu.memory import View, tiling, views
from shardwright.codegen.backends.pallas_tpu.pieces import Pieces, Sums, covered
from shardwright.codegen.backends.pallas_tpu.proofs import apart, expect, inside
from shardwright.codegen.backends.pallas_tpu.uniform import Uniform
from shardwright.codegen.moves.network.flows import flows
from shardwright.codegen.moves.network.timeline import Sends, Stage
from shardwright.codegen.text.index_functions import box_functions
from shardwright.codegen.text.python_text import called
from shardwright.ir.algebra.index import Integers
from shardwright.ir.errors import InternalError
from shardwright.ir.exchange import Exchange
from shardwright.ir.tiles import DimTiles


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
class Direct(Form):
    """The direct form of an exchange. `divisors`: common divisors of the starts and widths of
    tiles, by dimension in view order; `short`: whether some target shards are smaller than
    others."""

    facts: ClassVar[FormFacts] = FormFacts(
        name="direct",
        rank=1,
        does="tiles go by DMA from shard to shard",
        kernels=Kernels(("kernel",), ()),
        buffers="shards",
        support=("pallas_direct",),
        in_place=True,
    )
    divisors: tuple[int, ...]
    short: bool

    @classmethod
    def every(cls, delivery: Delivery) -> Iterator[Form]:
        exchange, itemsize = delivery.exchange, delivery.itemsize
        found = (Direct.of(exchange, itemsize, view) for view in views(len(exchange.dims)))
        yield from (each for each in found if each is not None)

    @staticmethod
    def of(exchange: Exchange, itemsize: int, view: View) -> Direct | None:
        """Return the form, or None if any tile is not aligned to memory tiles."""
        known = exchange.once(divisors)
        tiled = tuple(zip(view[-2:], tiling(itemsize, len(view)), strict=True))
        if not all(known[a] % unit == 0 or _is_whole(exchange, a) for a, unit in tiled):
            return None
        short = any(not dim.is_even for dim in exchange.target.dims)
        return Direct(view, itemsize, tuple(known[axis] for axis in view), short)

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
            relayout_bytes=relayout(exchange, itemsize, self.view),
        )

    def moves(self, figures: Figures, exchange: Exchange, *, reduces: bool) -> Iterator[Stage]:
        sends, devices = partial(flows, exchange, self.itemsize, self.taken), exchange.ranks.size
        starts = figures.starts(devices)
        yield Sends("tiles by DMA", sends, figures.hbm_bytes / devices, starts=starts)
        if figures.wire_bytes and not reduces:
            yield self.result(exchange)

    def prove_dim(self, place: int, pieces: Pieces, tiles: DimTiles, about: str) -> None:
        divisor = self.divisors[place]
        read, write = pieces.low - pieces.source_low, pieces.low - pieces.target_low
        for values in (read, write, pieces.width):
            expect(not (values % divisor).any(), f"{about}: not all multiples of {divisor}")
        inside(read, pieces.width, tiles.source.size, f"{about}, source")
        inside(write, pieces.width, tiles.target.size, f"{about}, target")
        apart(pieces.target, write, pieces.width, about)

    def text(self, request: KernelRequest) -> KernelText:
        """Return the text of the kernel, by the template of its own name or, if all tiles have the
        same shape, by those of `uniform.py`."""
        exchange, ends, host = request.exchange, request.ends, request.host
        uniform = Uniform.of(exchange, self.view, self.itemsize, host.program_axes, ends)
        if uniform is not None:
            return _uniform(request, self.view, uniform)
        moving = Moving.of(request)
        program, sends = moving.names, moving.sends
        given = [program.kernel, "2" if sends else "1", program.peers, repr(self.view)]
        given += request.settings(sends=sends)
        keeps = ("kept_by",) if moving.keeps or not sends else ()
        calls = {
            "pallas_direct": ("Direct",),
            "pallas_own": keeps,
            "pallas_filled": ("is_filled",) if sends else (),
            "pallas_peers": ("multiple", *(SENDS if sends else ())),
        }
        kernels = printed("direct", DirectText.of(self, exchange, moving))
        made = tuple(called(f"{ends.program} = Direct", given))
        return request.kernel(calls, ("pl", "pltpu"), kernels, made=made)


FORM = Direct


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


def _uniform(request: KernelRequest, view: View, uniform: Uniform) -> KernelText:
    text, ends, starts = uniform.text, request.ends, request.host.starts
    given = [text.kernel, "2" if uniform.sends else "1", ends.own("PEERS"), repr(view)]
    if starts and uniform.sends:
        given.append(f"kernels=({text.start_kernel}, {text.done_kernel})")
    given += request.settings(sends=uniform.sends)
    return KernelText(
        functions=ends.named(request.exchange.once(box_functions)),
        calls={
            "pallas_direct": ("Direct", *(("tile_at",) if uniform.sends else ())),
            "pallas_peers": tuple(uniform.calls),
            "pallas_permuted": ("Permuted",),
        },
        libraries=uniform.libraries,
        made=tuple(called(f"{ends.program} = Direct", given)),
        moves=tuple(uniform.peers_lines()),
        positions=uniform.functions,
        kernels=uniform.kernels(starts),
        halves=uniform.sends,
    )


def _is_whole(exchange: Exchange, axis: int) -> bool:
    tiles = exchange.dims[axis]
    cut = exchange.rule.pieces > 1 and axis == exchange.rule.cut
    return tiles.source.parts == tiles.target.parts == 1 and not cut
