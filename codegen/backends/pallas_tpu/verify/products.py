"""Check, from the devices' events, which block products a matmul kernel sums in every block of the
result. Imported only by workers.

First the events must follow the protocol of every kernel (`protocol`). Then they are executed
symbolically: the value of an operand's block is its device and its place; the value of a sum is a
count of products of such blocks. A device's final block of the result must sum one product for each
block along j and, if partial sums travel, for each device of its ring.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from functools import cache, partial
from types import ModuleType
from typing import Any

from shardwright.codegen.backends.pallas_tpu.matmul.blocks import (
    BATCH,
    DIM_I,
    DIM_J,
    DIM_K,
    DIMS,
    FACTORS,
    halves_of,
    unit_of,
)
from shardwright.codegen.backends.pallas_tpu.matmul.kernel import BlockedProduct
from shardwright.codegen.backends.pallas_tpu.verify.events import Combine, Copy, Window
from shardwright.codegen.backends.pallas_tpu.verify.order import Counts, Traces, count
from shardwright.codegen.backends.pallas_tpu.verify.protocol import check_protocol
from shardwright.codegen.backends.pallas_tpu.verify.trace import Event, traced_product
from shardwright.codegen.checks.clocks import carry_out
from shardwright.codegen.checks.compare import MismatchError, named

Place = tuple[int, ...]
Contents = Counter[Any]
"""The symbolic value of a block. For a block of an operand: (device, buffer, place, where its zeros
start or ""), counted once. For a sum: pairs of such blocks, each with its count."""

BOXES = {"a": "lhs_box", "b": "rhs_box", "c": "out_box"}
"""The module's index function for each side's boxes."""


@dataclass(frozen=True)
class _Ring(BlockedProduct):
    """The product and ring that a module's kernel states. `table`: each position's place in its
    ring and the next position; `order`: the part number at each place; `lead`: the batch dimension
    along which parts are cut, if any."""

    table: Any
    order: tuple[int, ...]
    lead: int

    @staticmethod
    def of(module: ModuleType, ring: Any) -> _Ring:
        size, factor = len(ring.rings[0]), FACTORS.index(ring.factor)
        ways, dtypes = ring.scratch[-1].shape[0], (module.DTYPE, module.OUT_DTYPE)
        part, unit = ring.extents[factor] // size, unit_of(factor, *dtypes)
        return _Ring(
            ring.travels,
            factor,
            size,
            ring.extents,
            halves_of(part, ways, unit, ring.blocks[factor]),
            ring.blocks,
            stays=False,  # which blocks are kept in VMEM is not checked
            keeps=False,
            dtype=module.DTYPE,
            sum_dtype=ring.c.dtype,
            out_dtype=module.OUT_DTYPE,
            table=ring.table(),
            order=tuple(ring.parts or range(size)),
            lead=ring.lead,
        )


def check_products(module: ModuleType, program: Any) -> None:
    """Raise MismatchError if a module's kernel breaks the protocol, or if a block of its result is
    not the sum of the right products."""
    ring = _Ring.of(module, program)
    _check_parts(module, ring)
    traces = traced_product(module, program)
    check_protocol(traces)
    held = _Held(ring, traces)
    for rank in range(len(traces)):
        for place in itertools.product(*map(range, _blocks(ring, "c"))):
            found, wanted = held.result(rank, place), _wanted(ring, rank, place)
            if found != wanted:
                raise MismatchError(
                    f"rank {rank}: block {place} of the result is not the sum of its products: "
                    f"{_difference(found, wanted)}"
                )


def _check_parts(module: ModuleType, ring: _Ring) -> None:
    """Raise MismatchError if a ring joins devices whose shards are not the parts of one array, or
    treats a shard as the wrong part.

    If a module makes additional moves, or a side is unreduced, the boxes of shards do not determine
    the parts, so check nothing.
    """
    does = named(module, "_multiply").__code__.co_names
    if does != ("_RING", "product") or any(side.terms for side in module._HOST.sides):
        return
    table = ring.table
    for rank in range(len(table)):
        members = [each for each in range(len(table)) if _same_ring(table, each, rank)]
        for member in members:
            found = _ranges(module, ring.travels, member)
            wanted = _part(module, ring, rank, int(ring.order[int(table[member, 0])]))
            if found != wanted:
                raise MismatchError(
                    f"rank {rank}: rank {member} of its ring has a different part of "
                    f"{ring.travels}: {found}, expected {wanted}"
                )
        along_j = {_ranges(module, "a", member)[DIM_J, 0] for member in members}
        if not ring.gathers and len(along_j) < len(members):
            raise MismatchError(f"rank {rank}: a ring adds the same products twice")


def _part(module: ModuleType, ring: _Ring, rank: int, part: int) -> dict[Place, range]:
    """Return the ranges of part `part` of the side that travels, given the ranges of a device's
    other sides."""
    whole: dict[Place, range] = {}
    for side in DIMS:
        whole |= _ranges(module, side, rank) if side != ring.travels else {}
    along, size = (
        (ring.factor, ring.lead),
        ring.extents[ring.factor] // ring.size,
    )
    start = whole[along].start + part * size
    whole[along] = range(start, start + size)
    return {dim: whole[dim] for dim in _ranges(module, ring.travels, rank)}


def _ranges(module: ModuleType, side: str, rank: int) -> dict[Place, range]:
    """Return the ranges of a device's shard of a side, by dimension: (BATCH, number), (DIM_I, 0)
    and so on."""
    ends = [int(end) for end in getattr(module, BOXES[side])(rank)]
    dims = [(BATCH, number) for number in range(len(ends) // 2 - 2)]
    dims += [(f, 0) for f in DIMS[side][1:]]
    pairs = zip(ends[::2], ends[1::2], strict=True)
    return {dim: range(*pair) for dim, pair in zip(dims, pairs, strict=True)}


def _blocks(ring: _Ring, side: str) -> Place:
    return tuple(len(_starts(ring, side, n)) for n in range(3))


def _starts(ring: _Ring, side: str, axis: int) -> dict[int, tuple[int, int]]:
    """Return, by the start of each block of an array along a dimension, the block's number and its
    extent without padding. `side`: "a", "b", "c", or "inbox" for arriving parts."""
    array = ring.come if side == "inbox" else ring.arrays[side]
    f = DIMS[ring.travels if side == "inbox" else side][axis]
    block, extent = ring.blocks[f], ring.extents[f]
    pieces, room = [extent], 0
    if f == ring.factor:
        parts = 1 if side in ("inbox", ring.travels) else ring.size
        pieces = list(array.halves) * parts
        room = array.pitch if array.apart else 0
    found: dict[int, tuple[int, int]] = {}
    start = 0
    for piece in pieces:
        for place in range(0, piece, block):
            found[start + place] = len(found), min(block, piece - place)
        start += room or piece
    return found


def _wanted(ring: _Ring, rank: int, place: Place) -> Contents:
    table = ring.table
    members = [position for position in range(len(table)) if _same_ring(table, position, rank)]
    part_of = {member: int(ring.order[int(table[member, 0])]) for member in members}
    batch, i, k = place
    found: Contents = Counter()
    if not ring.gathers:
        at = {BATCH: batch, DIM_I: i, DIM_K: k}
        at[ring.factor] += part_of[rank] * ring.counts[ring.factor] * ring.ways
        for member, j in itertools.product(members, range(_blocks(ring, "a")[2])):
            a, b = (at[BATCH], at[DIM_I], j), (at[BATCH], j, at[DIM_K])
            end = _end(ring, j)
            found[(member, "a", a, end), (member, "b", b, end)] += 1
        return found
    for j in range(ring.counts[DIM_J] * (ring.rounds if ring.factor == DIM_J else 1)):
        at = {BATCH: batch, DIM_I: i, DIM_J: j, DIM_K: k}
        own = ring.counts[ring.factor] * ring.ways  # number of blocks of a part along the factor
        part, within = divmod(at[ring.factor], own)
        (holder,) = (member for member, held in part_of.items() if held == part)
        sources = []
        for side, dims in list(DIMS.items())[:2]:
            travels = side == ring.travels
            where = tuple(within if travels and f == ring.factor else at[f] for f in dims)
            sources.append((holder if travels else rank, side, where, _end(ring, j)))
        found[tuple(sources)] += 1
    return found


def _end(ring: _Ring, number: int) -> str:
    """Return where zeros must start in block `number` along j of both operands: at the end of the
    matmul's extent, so that nothing beyond it is multiplied, or "" for a full block."""
    side = "a" if ring.travels == "b" else "b"  # the operand whose shard has the full extent of j
    _, size = sorted(_starts(ring, side, DIMS[side].index(DIM_J)).values())[number]
    return _zero_from(size) if size < ring.blocks[DIM_J] else ""


def _zero_from(size: int) -> str:
    return f"from {size} on zero"


def _same_ring(table: Any, position: int, other: int) -> bool:
    """Return whether two positions are in the same ring, following the table from position to next
    position."""
    at = other
    for _ in range(len(table)):
        if at == position:
            return True
        at = int(table[at, 1])
    return False


class _Held:
    """The symbolic values of all blocks after the devices' events. `held`: the values by place;
    `starts`: the cached function `_starts` of the ring."""

    def __init__(self, ring: _Ring, traces: Traces) -> None:
        self.ring = ring
        self.held: dict[Any, Contents] = {}
        self.starts = cache(partial(_starts, ring))
        counts = Counts()

        def step(rank: int, event: Event) -> bool:
            if not count(counts, rank, event):
                return False
            if isinstance(event, Copy):
                self._copy(rank, event)
            if isinstance(event, Combine):
                self._combine(rank, event)
            return True

        carry_out(traces, step)

    def result(self, rank: int, place: Place) -> Contents:
        return self._of(rank, ("c", place))

    def _copy(self, rank: int, copy: Copy) -> None:
        pairs = zip(self._places(copy.read), self._places(copy.write), strict=True)
        for read, write in pairs:
            self.held[event_place(copy.to, write)] = self._of(rank, read)

    def _of(self, rank: int, place: tuple[str, Place]) -> Contents:
        if place[0] in ("a", "b"):
            return Counter([(rank, *place, "")])
        found = self.held.get(event_place(rank, place))
        if found is None:
            raise MismatchError(
                f"rank {rank} reads {place[0]}{list(place[1])}, which was never written"
            )
        return found

    def _combine(self, rank: int, event: Combine) -> None:
        (into,) = self._places(event.into)
        values = [self._of(rank, place) for each in event.of for place in self._places(each)]
        total: Contents = Counter()
        if event.operator.endswith("on zero"):
            whole = _zero_from(self.ring.blocks[DIM_J])
            end = "" if event.operator == whole else event.operator
            total = Counter([(*block[:-1], end) for (block,) in values])
        elif event.operator == "product":
            *before, (a,), (b,) = values
            total = sum(before, Counter([(a, b)]))
        else:
            for value in values:
                total += value
        self.held[event_place(rank, into)] = total

    def _places(self, window: Window) -> list[tuple[str, Place]]:
        """Return the places of the blocks in a window. In HBM, a block's place is its number along
        each dimension, for arriving parts preceded by the number of the step; in VMEM, it is its
        slot."""
        side = self.ring.travels if window.buffer == "inbox" else window.buffer
        if side not in ("a", "b", "c"):
            return [(window.buffer, (window.ranges[0][0],))]
        dims = DIMS[side]
        lead = window.ranges[: len(window.ranges) - len(dims)]
        spans = [
            self._numbers(window.buffer, axis, *along)
            for axis, along in enumerate(window.ranges[len(lead) :])
        ]
        first = tuple(start for start, _ in lead)
        return [(window.buffer, (*first, *place)) for place in itertools.product(*spans)]

    def _numbers(self, buffer: str, axis: int, start: int, extent: int) -> list[int]:
        """Return the numbers of the blocks in a range along a dimension. Raises MismatchError
        unless the range consists of whole blocks."""
        within = {
            at: each
            for at, each in self.starts(buffer, axis).items()
            if start <= at < start + extent
        }
        first, last = min(within, default=-1), max(within, default=-1)
        if first != start or last + within[last][1] > start + extent:
            raise MismatchError(
                f"a copy of {extent} elements from {start} along dimension {axis} of {buffer!r} is "
                f"not made of whole blocks; blocks in this range start at {sorted(within)}"
            )
        return [number for number, _ in within.values()]


def event_place(rank: int, place: tuple[str, Place]) -> Any:
    """Return a place preceded by its device's rank."""
    return rank, *place


def _difference(found: Contents, wanted: Contents) -> str:
    for what, more in (("too much", found - wanted), ("lacking", wanted - found)):
        if more:
            return f"{what}: {min(more, key=str)}"
    return "as often"
