"""List the transfers of an exchange as bytes between devices, for routing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from shardwright.codegen.moves.network.links import CHUNK, Flows
from shardwright.ir.arrays import Integers
from shardwright.ir.errors import InputError
from shardwright.ir.exchange import Exchange, ids_of

# The maximum number of transfers to route, which takes about a minute.
MOST_ROUTED = 1 << 28


# Takes a dimension and the extents of pieces along it, and returns the extents that are sent.
Taken = Callable[[int, Integers], Integers]


def _exactly(_axis: int, width: Integers) -> Integers:
    return width


def flows(exchange: Exchange, itemsize: int, taken: Taken = _exactly) -> Iterator[Flows]:
    """Yield the transfers between different devices, in arrays of bounded size.

    `taken`: a function that returns the extents of pieces as sent, padding included. Each
    combination of one tile per dimension is sent to every replica of its target shard that does not
    hold it. Raises InputError for more than MOST_ROUTED transfers.
    """
    pairs = [dim.pairs for dim in exchange.dims]
    counts = [pair.source.size for pair in pairs]
    replicas = exchange.target.replicas
    total = math.prod(counts) * replicas
    if total > MOST_ROUTED:
        raise InputError(
            "too many transfers to route",
            argument="topology",
            got=f"{total:,} transfers",
            expected=f"at most {MOST_ROUTED:,}; or no topology, or strategy basis",
        )
    for start in range(0, total, CHUNK):
        number = np.arange(start, min(start + CHUNK, total), dtype=np.int64)
        tile, replica = np.divmod(number, replicas)
        picks = np.unravel_index(tile, counts) if counts else ()
        shard = tuple(pair.source[pick] for pair, pick in zip(pairs, picks, strict=True))
        wanted = tuple(pair.target[pick] for pair, pick in zip(pairs, picks, strict=True))
        widths = [pair.width[pick] for pair, pick in zip(pairs, picks, strict=True)]
        receiver = exchange.target.position(wanted, replica) + 0 * number
        yield from _sent(exchange, itemsize, shard, receiver, widths, taken)


def _sent(
    exchange: Exchange,
    itemsize: int,
    shard: tuple[Integers, ...],
    receiver: Integers,
    widths: list[Integers],
    taken: Taken,
) -> Iterator[Flows]:
    """Yield the transfers of the pieces of tiles, omitting tiles that the receiver already holds.

    `shard`: the index of the source shard of each tile along each dimension. `receiver`: the target
    positions. `widths`: the widths of tiles along each dimension.
    """
    own = exchange.source_position_of(receiver)
    held = own >= 0
    for dim, index in zip(exchange.source.dims, shard, strict=True):
        held &= dim.index(own) == index
    away = ~held
    shard, receiver = tuple(index[away] for index in shard), receiver[away]
    widths = [width[away] for width in widths]
    sources, targets = ids_of(exchange.source.mesh), ids_of(exchange.target.mesh)
    for piece in range(exchange.rule.pieces):
        elements = np.ones(receiver.size, dtype=np.float64)
        full = np.ones(receiver.size, dtype=np.bool_)
        for axis, width in enumerate(widths):
            if exchange.rule.pieces > 1 and axis == exchange.rule.cut:
                low, high = exchange.piece(width, piece)
                width = high - low
            elements *= taken(axis, width)
            full &= width > 0
        sender = exchange.holder(shard, receiver, piece) + 0 * receiver
        yield Flows(sources[sender[full]], targets[receiver[full]], elements[full] * itemsize)
