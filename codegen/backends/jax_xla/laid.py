"""What a module of plain JAX is to a TPU: its collectives and what it does around them, in order.

From this follow the passes over memory that XLA makes (`planner/network/passes.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import assert_never

from shardwright.codegen.backends.jax_xla.collectives import Collectives
from shardwright.codegen.backends.jax_xla.fetches import Fetches
from shardwright.codegen.backends.jax_xla.groups import Groups
from shardwright.codegen.backends.jax_xla.ragged import Ragged
from shardwright.codegen.backends.jax_xla.rounds import Rounds
from shardwright.codegen.backends.jax_xla.steps.plan import Steps
from shardwright.codegen.backends.jax_xla.transport import How
from shardwright.codegen.planner.network.passes import Laid
from shardwright.ir.dtypes import is_floating
from shardwright.ir.exchange import Exchange
from shardwright.ir.reshard import Reshard

SMALL = 4
"""Bytes of elements with which XLA only computes as what they are."""


def laid_by(how: How, exchange: Exchange) -> Iterator[Laid]:
    """Yield what a module is to a TPU, but for boxes that are cut and put in place."""
    target = math.prod(exchange.target.local_shape)
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
                yield Laid("all-gather", target)
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
    """Return whether XLA may compute with larger elements where a reshard only moves them."""
    return is_floating(reshard.dtype) and reshard.itemsize < SMALL and not reshard.adds
