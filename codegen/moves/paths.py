"""Cheapest paths between layouts of a value.

This is an A* search over layouts, in which each layout change is an edge. An edge costs the bytes
that a device receives in a ring algorithm or, on a topology, the bytes that it could receive over
the fastest axis in the time of the collective. The lower bound is the number of bytes that a device
must still receive.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from shardwright.codegen.moves.block_moves import MOST_DEVICES, MOST_ROUNDS, MoveBlocks, rounds_of
from shardwright.codegen.moves.move import LayoutMove, Move
from shardwright.codegen.moves.pace import Pace
from shardwright.codegen.ops.layout import LocalLayout, Names
from shardwright.ir.errors import InternalError
from shardwright.ir.steps import ring_bytes

Came = dict[LocalLayout, tuple[LocalLayout, LayoutMove]]

# bytes added per change, so that the shorter of two equally cheap paths is chosen
A_COLLECTIVE, A_LOCAL_CHANGE = 1.0, 0.01
# added to a direct exchange, because it copies a shard into blocks and back: up to two other
# collectives that receive as many bytes are preferred
A_DIRECT = 1.5


@dataclass(frozen=True)
class Tensor:
    """A tensor to be moved: its unsplit shape, the bytes of an element, the sizes of pieces of
    axes, and the price of communication on a topology, if any."""

    shape: tuple[int, ...]
    item: int
    sizes: tuple[tuple[str, int], ...]
    pace: Pace | None = None

    @functools.cached_property
    def size_of(self) -> dict[str, int]:
        return dict(self.sizes)

    def parts(self, names: Iterable[str]) -> int:
        sizes = self.size_of
        return math.prod([sizes[name] for name in names])

    def bytes(self, layout: LocalLayout) -> int:
        return math.prod(layout.local(self.shape, self.size_of)) * self.item

    def change(self, op: str, axes: Names, dims: tuple[int, ...], after: LocalLayout) -> LayoutMove:
        """Return a change by a collective along `axes`."""
        received = ring_bytes(op, self.bytes(after), self.parts(axes))
        return Move(op, axes, after, dims, received)

    def price(self, layout: LocalLayout, change: LayoutMove) -> float:
        """Return the price of a change of a layout: bytes over the fastest axis, plus a small
        amount that decides between equally cheap paths."""
        if not change.received:
            return A_LOCAL_CHANGE
        received = float(change.received)
        if self.pace:
            rounds = rounds_of(change, layout, self.shape, self.sizes)
            received = self.pace.of(change.collective, change.axes, change.received, rounds)
        extra = A_DIRECT if change.op == "exchange" else 0.0
        return received + change.collectives * A_COLLECTIVE + extra


@functools.cache
def way(
    sources: tuple[LocalLayout, ...], target: LocalLayout, tensor: Tensor
) -> tuple[float, int, tuple[LayoutMove, ...]]:
    """Return the price of the cheapest path from any layout in `sources` to `target`, the index of
    the source where it starts, and its changes.

    A path always exists: reduce, gather everything, and slice.
    """
    heap = [
        (_least(source, target, tensor), 0.0, place, source) for place, source in enumerate(sources)
    ]
    came: Came = {}
    best = dict.fromkeys(sources, 0.0)
    count = itertools.count(len(sources))
    done: set[LocalLayout] = set()
    while heap:
        *_, layout = heapq.heappop(heap)
        price = best[layout]
        if layout == target:
            return price, *_traced(layout, sources, came)
        if layout in done:
            continue
        done.add(layout)
        for change in _next(layout, target, tensor):
            total = price + tensor.price(layout, change)
            if total < best.get(change.after, math.inf):
                best[change.after] = total
                came[change.after] = (layout, change)
                bound = total + _least(change.after, target, tensor)
                heapq.heappush(heap, (bound, total, next(count), change.after))
    raise InternalError(f"no way to {target}")


def _least(layout: LocalLayout, target: LocalLayout, tensor: Tensor) -> float:
    is_reduced = layout.partial and not target.partial
    missing = (_summed if is_reduced else _missing)(layout, target, tensor)
    if not missing:
        return 0.0
    return A_COLLECTIVE + (tensor.pace.at_least(missing) if tensor.pace else missing)


def _summed(layout: LocalLayout, target: LocalLayout, tensor: Tensor) -> int:
    """Return the minimum number of bytes that a device receives on average to get its target shard
    of a sum: for each element, n - 1 of the n terms must be received, and then every copy of the
    sum but the first."""
    taken = {*layout.used, *layout.partial}
    terms = tensor.parts(layout.partial)
    copies = tensor.parts(name for name in target.used if name not in taken)
    return tensor.bytes(target) + tensor.bytes(layout) // (terms * copies) * max(terms - 2, 0)


def _missing(layout: LocalLayout, target: LocalLayout, tensor: Tensor) -> int:
    """Return the most bytes that any device lacks: the part of its target shard that it does not
    have."""
    wanted, held = tensor.bytes(target), tensor.item
    for extent, here, there in zip(tensor.shape, layout.dims, target.dims, strict=True):
        longer = max(here, there, key=len)
        if longer[: len(here)] != here or longer[: len(there)] != there:
            return wanted  # a device may have none of its target shard
        held *= extent // tensor.parts(longer)
    return wanted - held


def _traced(
    layout: LocalLayout, sources: tuple[LocalLayout, ...], came: Came
) -> tuple[int, tuple[LayoutMove, ...]]:
    changes: list[LayoutMove] = []
    while layout in came:
        layout, change = came[layout]
        changes.append(change)
    return sources.index(layout), tuple(reversed(changes))


def _next(layout: LocalLayout, target: LocalLayout, tensor: Tensor) -> Iterator[LayoutMove]:
    yield from _local(layout, target, tensor)
    yield from _sums(layout, target, tensor)
    yield from _gathers(layout, tensor)
    yield from _exchanges(layout, tensor)
    yield from _joint_exchange(layout, target, tensor)
    yield from _permutes(layout, target, tensor)
    yield from _direct(layout, target, tensor)


def _local(layout: LocalLayout, target: LocalLayout, tensor: Tensor) -> Iterator[LayoutMove]:
    """Yield the changes without communication: slices along axes that split the target, and masks
    that turn a value into partial sums."""
    taken = {*layout.used, *layout.partial}
    for name in (name for name in target.used if name not in taken):
        for dim, names in enumerate(layout.dims):
            if tensor.shape[dim] % tensor.parts((*names, name)) == 0:
                yield Move("slice", (name,), layout.with_dim(dim, (*names, name)), (dim,))
    new = tuple(name for name in target.partial if name not in taken)
    if new and target.operator == "sum" and layout.operator == "sum":
        both = {*layout.partial, *new}
        partial = tuple(name for name, _ in tensor.sizes if name in both)
        yield Move("replicated_to_unreduced", new, replace(layout, partial=partial))


def _sums(layout: LocalLayout, target: LocalLayout, tensor: Tensor) -> Iterator[LayoutMove]:
    """Yield reductions of partial results by all-reduce or reduce-scatter. If the target is partial
    with the same operator, its partial axes are not reduced."""
    kept = target.partial if layout.operator == target.operator else ()
    open_ = [name for name in layout.partial if name not in kept]
    for length in range(1, len(open_) + 1):
        for names in itertools.combinations(open_, length):
            left = tuple(name for name in layout.partial if name not in names)
            operator = layout.operator if left else "sum"
            after = replace(layout, partial=left, operator=operator)
            yield tensor.change("all_reduce", names, (), after)
            if layout.operator == "sum":
                yield from _scatters(after, names, tensor)


def _scatters(after: LocalLayout, names: tuple[str, ...], tensor: Tensor) -> Iterator[LayoutMove]:
    for order in itertools.permutations(names):
        for dim, own in enumerate(after.dims):
            if tensor.shape[dim] % tensor.parts((*own, *order)) == 0:
                to = after.with_dim(dim, (*own, *order))
                yield tensor.change("reduce_scatter", order, (dim,), to)


def _gathers(layout: LocalLayout, tensor: Tensor) -> Iterator[LayoutMove]:
    for dim, names in enumerate(layout.dims):
        for start in range(len(names)):
            after = layout.with_dim(dim, names[:start])
            yield tensor.change("all_gather", names[start:], (dim,), after)


def _exchanges(layout: LocalLayout, tensor: Tensor) -> Iterator[LayoutMove]:
    """Yield all-to-alls that move the last pieces of one dimension to the end of another."""
    for dim, names in enumerate(layout.dims):
        for start in range(len(names)):
            moved = names[start:]
            for to, own in enumerate(layout.dims):
                if to != dim and tensor.shape[to] % tensor.parts((*own, *moved)) == 0:
                    after = layout.with_dim(dim, names[:start]).with_dim(to, (*own, *moved))
                    yield tensor.change("all_to_all", moved, (dim, to), after)


def _joint_exchange(
    layout: LocalLayout, target: LocalLayout, tensor: Tensor
) -> Iterator[LayoutMove]:
    """Yield the all-to-all that moves trailing pieces of several dimensions at once to their
    dimensions in the target."""
    places = {name: dim for dim, names in enumerate(target.dims) for name in names}
    kept: list[Names] = []
    moved: dict[str, int] = {}  # the dimension that each piece leaves
    for dim, names in enumerate(layout.dims):
        staying = [place for place, name in enumerate(names) if places.get(name, dim) == dim]
        start = staying[-1] + 1 if staying else 0
        kept.append(names[:start])
        moved.update(dict.fromkeys(names[start:], dim))
    coming = [tuple(name for name in names if name in moved) for names in target.dims]
    pairs = {(moved[name], dim) for dim, names in enumerate(coming) for name in names}
    after = [(*own, *new) for own, new in zip(kept, coming, strict=True)]
    divide = (n % tensor.parts(own) == 0 for n, own in zip(tensor.shape, after, strict=True))
    apart = {left for left, _ in pairs}.isdisjoint(entered for _, entered in pairs)
    if len(pairs) > 1 and apart and all(divide):
        axes = tuple(name for names in coming for name in names)
        yield tensor.change("all_to_all", axes, (), replace(layout, dims=tuple(after)))


def _permutes(layout: LocalLayout, target: LocalLayout, tensor: Tensor) -> Iterator[LayoutMove]:
    """Yield the permute, if there is one, after which only gathers of trailing pieces remain."""
    if layout.partial != target.partial:
        return
    lost = [tuple(name for name in names if name not in target.used) for names in layout.dims]
    dims = tuple((*own, *rest) for own, rest in zip(target.dims, lost, strict=True))
    after = replace(target, dims=dims)
    if dims == layout.dims or any(
        tensor.parts(old) != tensor.parts(new) for old, new in zip(layout.dims, dims, strict=True)
    ):
        return
    axes = tuple(name for name, _ in tensor.sizes if name in {*layout.used, *target.used})
    yield tensor.change("permute", axes, (), after)


def _direct(layout: LocalLayout, target: LocalLayout, tensor: Tensor) -> Iterator[LayoutMove]:
    """Yield the direct exchange, in which devices receive exactly the bytes of the target that they
    lack. Yield nothing if partial results change, or for too many devices or rounds."""
    if layout.partial != target.partial or layout.operator != target.operator:
        return
    received = _missing(layout, target, tensor)
    if not received:
        return
    blocks = MoveBlocks.of(layout, target, tensor.shape, tensor.sizes)
    rounds = 0 if blocks.is_at_once else received // (math.prod(blocks.block) * tensor.item)
    if blocks.devices <= MOST_DEVICES and rounds <= MOST_ROUNDS:
        yield Move("exchange", blocks.axes, target, (), received, rounds)
