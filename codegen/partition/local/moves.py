"""How a value gets from one layout to another: the changes that receive the fewest bytes.

A search over layouts by bytes (Dijkstra's), where each collective leads from one layout to another.
Bytes are those a device receives where a collective runs around a ring.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from shardwright.codegen.partition.local.layout import LocalLayout
from shardwright.codegen.partition.local.steps import LayoutChange
from shardwright.ir.errors import InternalError

Came = dict[LocalLayout, tuple[LocalLayout, LayoutChange]]

A_COLLECTIVE, A_LOCAL_CHANGE = 1.0, 0.01  # in bytes: of two ways that receive as much, the shorter


@dataclass(frozen=True)
class Tensor:
    """What is moved: the shape of the whole, bytes an element, the sizes of pieces of axes."""

    shape: tuple[int, ...]
    item: int
    sizes: tuple[tuple[str, int], ...]

    def parts(self, names: Iterable[str]) -> int:
        sizes = dict(self.sizes)
        return math.prod(sizes[name] for name in names)

    def bytes(self, layout: LocalLayout) -> int:
        """Return the bytes of one shard."""
        return math.prod(layout.local(self.shape, dict(self.sizes))) * self.item


@functools.cache
def way(
    sources: tuple[LocalLayout, ...], target: LocalLayout, tensor: Tensor
) -> tuple[float, int, tuple[LayoutChange, ...]]:
    """Return the price of the cheapest way to a layout, the source it starts from, and its changes.

    There always is one: what is reduced and gathered whole can be sliced.
    """
    heap = [(0.0, place, source) for place, source in enumerate(sources)]
    came: Came = {}
    best = dict.fromkeys(sources, 0.0)
    count = itertools.count(len(sources))
    done: set[LocalLayout] = set()
    while heap:
        price, _, layout = heapq.heappop(heap)
        if layout == target:
            return price, *_traced(layout, sources, came)
        if layout in done:
            continue
        done.add(layout)
        for change in _next(layout, target, tensor):
            step = A_COLLECTIVE if change.received else A_LOCAL_CHANGE
            total = price + change.received + step
            if total < best.get(change.layout, math.inf):
                best[change.layout] = total
                came[change.layout] = (layout, change)
                heapq.heappush(heap, (total, next(count), change.layout))
    raise InternalError(f"no way to {target}")


def _traced(
    layout: LocalLayout, sources: tuple[LocalLayout, ...], came: Came
) -> tuple[int, tuple[LayoutChange, ...]]:
    """Return the source from which a layout was reached, and the changes from there."""
    changes: list[LayoutChange] = []
    while layout in came:
        layout, change = came[layout]
        changes.append(change)
    return sources.index(layout), tuple(reversed(changes))


def _next(layout: LocalLayout, target: LocalLayout, tensor: Tensor) -> Iterator[LayoutChange]:
    yield from _local(layout, target, tensor)
    yield from _sums(layout, target, tensor)
    yield from _gathers(layout, tensor)
    yield from _exchanges(layout, tensor)
    here, there = (each.local(tensor.shape, dict(tensor.sizes)) for each in (layout, target))
    alike = here == there and layout.partial == target.partial and layout.dims != target.dims
    if alike and all(tensor.shape):
        axes = tuple(name for name, _ in tensor.sizes if name in {*layout.used, *target.used})
        yield LayoutChange("permute", axes, (), target, tensor.bytes(layout))


def _local(layout: LocalLayout, target: LocalLayout, tensor: Tensor) -> Iterator[LayoutChange]:
    """Yield slices along axes that the target is split by, and the terms it is to consist of."""
    taken = {*layout.used, *layout.partial}
    for name in (name for name in target.used if name not in taken):
        for dim, names in enumerate(layout.dims):
            if tensor.shape[dim] % tensor.parts((*names, name)) == 0:
                yield LayoutChange(
                    "slice", (name,), (dim,), layout.with_dim(dim, (*names, name)), 0
                )
    new = tuple(name for name in target.partial if name not in taken)
    if new and target.operator == "sum" and layout.operator == "sum":
        both = {*layout.partial, *new}
        partial = tuple(name for name, _ in tensor.sizes if name in both)
        yield LayoutChange("mask", new, (), replace(layout, partial=partial), 0)


def _sums(layout: LocalLayout, target: LocalLayout, tensor: Tensor) -> Iterator[LayoutChange]:
    """Yield reductions of terms, each with all devices or each device its part."""
    open_ = [name for name in layout.partial if name not in target.partial]
    for length in range(1, len(open_) + 1):
        for names in itertools.combinations(open_, length):
            left = tuple(name for name in layout.partial if name not in names)
            operator = layout.operator if left else "sum"
            after = replace(layout, partial=left, operator=operator)
            n = tensor.parts(names)
            received = 2 * (tensor.bytes(after) * (n - 1) // n)
            yield LayoutChange("all_reduce", names, (), after, received)
            if layout.operator == "sum":
                yield from _scatters(after, names, tensor)


def _scatters(after: LocalLayout, names: tuple[str, ...], tensor: Tensor) -> Iterator[LayoutChange]:
    n = tensor.parts(names)
    for order in itertools.permutations(names):
        for dim, own in enumerate(after.dims):
            if tensor.shape[dim] % tensor.parts((*own, *order)) == 0:
                to = after.with_dim(dim, (*own, *order))
                received = tensor.bytes(to) * (n - 1)
                yield LayoutChange("reduce_scatter", order, (dim,), to, received)


def _gathers(layout: LocalLayout, tensor: Tensor) -> Iterator[LayoutChange]:
    for dim, names in enumerate(layout.dims):
        for start in range(len(names)):
            after = layout.with_dim(dim, names[:start])
            n = tensor.parts(names[start:])
            received = tensor.bytes(after) * (n - 1) // n
            yield LayoutChange("all_gather", names[start:], (dim,), after, received)


def _exchanges(layout: LocalLayout, tensor: Tensor) -> Iterator[LayoutChange]:
    """Yield all-to-alls: the last pieces of one dimension become the last of another."""
    for dim, names in enumerate(layout.dims):
        for start in range(len(names)):
            moved = names[start:]
            n = tensor.parts(moved)
            for to, own in enumerate(layout.dims):
                if to != dim and tensor.shape[to] % tensor.parts((*own, *moved)) == 0:
                    after = layout.with_dim(dim, names[:start]).with_dim(to, (*own, *moved))
                    received = tensor.bytes(layout) * (n - 1) // n
                    yield LayoutChange("all_to_all", moved, (dim, to), after, received)
