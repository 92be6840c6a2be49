"""Derive a kernel's expressions for its tiles along one dimension, as simple as the tiles allow.

A target shard overlaps a bounded number of source shards; `turn` numbers them. All tiles are
enumerated here to find out whether each starts at the start of its source shard, whether all have
the same extent, and which tests all of them pass. The kernel then omits those computations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import sympy

from shardwright.codegen.text.index_functions import FunctionBody
from shardwright.ir.algebra.identities import simplify
from shardwright.ir.algebra.index import Index, Integers, Value, maximum, minimum
from shardwright.ir.cuts import unnamed
from shardwright.ir.tiles import DimTiles


@dataclass(frozen=True)
class Words:
    """The names of a kernel's variables, without the dimension's number. `own`, `met`: the starts
    of the device's own shard and of the other device's shard; `number`: the number of the other
    shard; `held`, `wanted`: the extents of the other shard and of the device's own; `own_side`,
    `met_side`: prefixes for the names of other values of the two shards."""

    own: str = "to"
    met: str = "from"
    number: str = "a"
    held: str = "held"
    wanted: str = "wanted"
    own_side: str = "target_"
    met_side: str = "source_"


PULLED = Words()
PUSHED = Words("from", "to", "b", "wanted", "held", "source_", "target_")

Condition = tuple[Value, Value]
"""(a, b): the condition a < b."""


@dataclass(frozen=True)
class Candidates:
    """All pairs of a non-empty target shard and a source shard that it may overlap, as arrays with
    one element per pair: the number of the source shard, and the ends of both shards.

    Every target shard has the same number of pairs. If it overlaps fewer source shards, it is also
    paired with the source shards that follow; the tiles of these pairs are empty.
    """

    source: Integers
    source_low: Integers
    source_high: Integers
    target_low: Integers
    target_high: Integers

    @staticmethod
    def of(dim: DimTiles) -> Candidates:
        count = dim.max_peers_of_target
        low, high = dim.target.intervals
        full = np.flatnonzero(high > low)
        first = np.broadcast_to(dim.source.owner(low[full]), full.shape)
        source = (first[:, None] + np.arange(count)).reshape(-1)
        target = np.repeat(full, count)
        if dim.source.is_flat:
            starts, ends = source * dim.source.size, (source + 1) * dim.source.size
        else:  # past the last shard, the formulas of a nested split are wrong
            known, beyond = np.minimum(source, dim.source.parts - 1), source >= dim.source.parts
            starts, ends = (
                np.where(beyond, dim.source.extent, end[known]) for end in dim.source.intervals
            )
        return Candidates(source, starts, ends, low[target], high[target])

    @property
    def full(self) -> np.ndarray:
        """Whether each pair's tile is non-empty."""
        found: np.ndarray = self.low < self.high
        return found

    @property
    def low(self) -> Integers:
        low: Integers = np.maximum(self.source_low, self.target_low)
        return low

    @property
    def high(self) -> Integers:
        """The end of each pair's tile. If the tile is empty, its end is at most its start."""
        high: Integers = np.minimum(self.source_high, self.target_high)
        return high

    @property
    def width(self) -> int | None:
        """The extent of all non-empty tiles, or None if they differ."""
        widths = np.unique((self.high - self.low)[self.full])
        return int(widths[0]) if widths.size == 1 else None


@dataclass(frozen=True)
class Along:
    """A tile along one dimension, as values of a kernel. `source`: the number of the source shard;
    `read`, `write`: where the tile starts in the source and in the target shard; `width`: the
    tile's extent; `held`, `wanted`: the extents of the source and of the target shard; `inside`:
    tests, of which at least one fails if the tile is empty."""

    source: Value
    read: Value
    write: Value
    width: Value
    held: Value
    wanted: Value
    inside: tuple[Condition, ...]


def along(
    dim: DimTiles,
    axis: int,
    receiver: Index,
    turn: Value,
    body: FunctionBody,
    words: Words = PULLED,
) -> Along:
    """Return the tile, along a dimension, that a receiver needs from source shard number `turn` of
    those that its target shard overlaps. Append named values to `body`. For a sender's tile, pass
    the dimension with its sides exchanged."""
    met = Candidates.of(dim)
    target_low, target_high = _target_ends(dim, axis, receiver, met, body, words)
    if all(map(np.array_equal, dim.source.intervals, dim.target.intervals)):
        return _whole(dim, axis, receiver, target_low, target_high, body)
    let = unnamed if dim.source.is_flat else body.named(axis, "first_")
    number = f"{words.number}{axis}"
    source = body.let(number, dim.source.owner(target_low, let) + turn)
    if getattr(source, "name", "") == number:  # past the last shard if the tile is empty
        source = Index(source.name, dim.source.parts)
    source_low, source_high = _source_ends(dim, axis, source, body, words)
    if (met.source_low >= met.target_low).all():
        low = source_low
    elif (met.target_low >= met.source_low).all():
        low = target_low
    else:
        low = body.let(f"low{axis}", maximum(source_low, target_low))
    if (met.source_high <= met.target_high).all():
        high = source_high
    elif (met.target_high <= met.source_high).all():
        high = target_high
    else:
        high = body.let(f"high{axis}", minimum(source_high, target_high))
    width = body.let(f"width{axis}", high - low if met.width is None else met.width)
    held, wanted = source_high - source_low, target_high - target_low
    if dim.source.is_flat:
        held = minimum(source_high, dim.source.extent) - source_low
    return Along(
        source=source,
        read=simplify(low - source_low),
        write=simplify(low - target_low),
        width=width,
        held=body.let(f"{words.held}{axis}", dim.source.size if dim.source.is_even else held),
        wanted=body.let(f"{words.wanted}{axis}", dim.target.size if dim.target.is_even else wanted),
        inside=_inside(dim, met, source, low, high),
    )


def _whole(
    dim: DimTiles, axis: int, receiver: Index, low: Value, high: Value, body: FunctionBody
) -> Along:
    zero = sympy.Integer(0)
    width = body.let(f"width{axis}", dim.target.size if dim.target.is_even else high - low)
    # No test is needed: the host launches no kernel for an empty target shard.
    return Along(dim.target.index(receiver), zero, zero, width, width, width, ())


def _target_ends(
    dim: DimTiles, axis: int, receiver: Index, met: Candidates, body: FunctionBody, words: Words
) -> tuple[Value, Value]:
    index = dim.target.index(receiver)
    if not dim.target.is_flat:
        return dim.target.interval(index, body.named(axis, words.own_side))
    low = body.let(f"{words.own}{axis}", index * dim.target.size)
    high = low + dim.target.size
    if (met.target_high < met.target_low + dim.target.size).any():
        high = minimum(high, dim.target.extent)
    return low, simplify(high)


def _source_ends(
    dim: DimTiles, axis: int, source: Value, body: FunctionBody, words: Words
) -> tuple[Value, Value]:
    """Return the start and end of a source shard. The end of a flat split's last shard may exceed
    the tensor's extent, which does not matter, because tiles also end with their target shard."""
    if not dim.source.is_flat:
        return dim.source.interval(source, body.named(axis, words.met_side))
    low = body.let(f"{words.met}{axis}", source * dim.source.size)
    return low, simplify(low + dim.source.size)


def _inside(
    dim: DimTiles, met: Candidates, source: Value, low: Value, high: Value
) -> tuple[Condition, ...]:
    if met.full.all():
        return ()
    beyond = not dim.source.is_flat and bool((met.source >= dim.source.parts).any())
    return (*(((source, dim.source.parts),) if beyond else ()), (low, high))
