"""A plain JAX module as XLA compiles it for a TPU: its collectives and the operations around them,
in order.

These operations determine XLA's passes over memory (`moves/network/passes.py`), and whether small
floats move unchanged: XLA may compute with elements that a program only moves, which drops NaN
payloads. Integers of the same width keep every bit, but on a TPU each change of type is a pass over
a shard. In HLO compiled for v5e, v5p and v6e (jax 0.10.2, libtpu 0.0.42), sequences of permutes,
slices, all-gathers and all-to-alls only move floats of any dtype. The following operations compute:

    all-gather of vectors               a sum of arrays that are zero elsewhere
    all-to-all with an extent of 1      a sum along that dimension
    concatenation of boxes              a maximum of padded arrays
    where, pad, update within a shard   a choice, which may be fused with either

`tests/hlo/test_hlo_copies.py` compiles modules and reads their HLO.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import assert_never

from shardwright.codegen.backends.jax_host import short_dims
from shardwright.codegen.backends.jax_steps.blocks import Collectives
from shardwright.codegen.backends.jax_steps.plan import Steps
from shardwright.codegen.backends.jax_xla.boxes import reached
from shardwright.codegen.backends.jax_xla.fetches import Fetches
from shardwright.codegen.backends.jax_xla.groups import Groups
from shardwright.codegen.backends.jax_xla.ragged import Ragged
from shardwright.codegen.backends.jax_xla.rounds import Rounds
from shardwright.codegen.backends.jax_xla.transport import How
from shardwright.codegen.moves.network.passes import Laid, gathered
from shardwright.ir.dtypes import is_floating
from shardwright.ir.exchange import Exchange
from shardwright.ir.reshard import Reshard

MOVERS = ("slice", "permute", "all-gather", "all-to-all")
SMALL = 4
"""The smallest size, in bytes, of elements that are safe: XLA computes with smaller ones in a wider
type."""


def laid_by(how: How, exchange: Exchange) -> Iterator[Laid]:
    """Yield a module's operations on a TPU, except those that cut boxes and put them in place."""
    shape = exchange.target.local_shape
    target = math.prod(shape)
    match how:
        case Collectives(laid=laid):
            yield from laid
        case Groups(members=members, join=join):
            yield Laid("boxes", members * math.prod(join.window))
            if join.grid[-1] > 1 and join.lines_of_rows[:-1]:
                yield Laid("all-gather", target, turned=1)
            else:
                yield Laid("boxes" if join.lines_of_rows[:-1] else "permute", target)
        case Fetches(join=join):
            elements = math.prod(join.window)
            if not how.is_whole:
                yield Laid("slice", elements)
            if how.permutes:
                yield Laid("permute", elements)
            if how.dimensions:
                yield gathered(join.window, shape)
        case Rounds(fills=fills):
            yield Laid("permute" if fills else "boxes", target)
        case Ragged():
            yield Laid("boxes", target)
        case Steps(blocks=blocks):
            for block in blocks:
                yield from block.laid
        case _:
            assert_never(how)


def is_small_float(reshard: Reshard) -> bool:
    """Return whether XLA may convert elements to a wider type although a reshard only moves
    them."""
    return is_floating(reshard.dtype) and reshard.itemsize < SMALL and not reshard.adds


def moves_floats(reshard: Reshard, how: How, exchange: Exchange) -> bool:
    """Return whether every bit of narrow floats passes through a module on a TPU unchanged. It
    does if the module only moves them, and pads no shard or box."""
    if not is_small_float(reshard) or short_dims(exchange.source) or short_dims(exchange.target):
        return False
    laid = tuple(laid_by(how, exchange))
    keeps = all(each.op in MOVERS and each.keeps_floats for each in laid)
    return bool(laid) and keeps and not _pads(how, exchange)


def _pads(how: How, exchange: Exchange) -> bool:
    source = exchange.source.local_shape
    match how:
        case Fetches():
            return not how.is_whole and reached(exchange.source, exchange.target) != source
        case Rounds():
            return source != exchange.target.local_shape
        case Collectives():
            return "jnp" in how.uses
        case Steps():
            return "jnp" in how.libraries
        case Groups() | Ragged():
            raise AssertionError("unreachable: groups and ragged exchanges cut boxes")
        case _:
            assert_never(how)
