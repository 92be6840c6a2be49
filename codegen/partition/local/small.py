"""Small computations whose results are needed whole: plans that compute them whole on every device.

Computation is priced by its bytes, so a plan may split the update of a bias of a few elements over
devices, and then gather the result. If every device computes the whole update, devices may receive
fewer bytes in fewer collectives.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from shardwright.codegen.ops.layout import LocalLayout
from shardwright.codegen.ops.table import POINTWISE
from shardwright.codegen.partition.local.assign import FactorAxes
from shardwright.codegen.partition.local.costs import Costs

SMALL = 2**14
"""Tensors of at most this many bytes, unsplit, count as small."""


def small_updates(costs: Costs) -> Iterator[dict[int, FactorAxes]]:
    """Yield the splits, by op, with which each connected set of small pointwise ops computes in the
    layout that arguments and results of its shape have."""
    groups = _Groups()
    homes: dict[int, dict[tuple[int, ...], LocalLayout]] = defaultdict(dict)
    small = [number for number in range(len(costs.ops)) if _is_small(costs, number)]
    for number in small:
        for wire, _ in costs.touched[number]:
            if costs.wires[wire].tensor.shape:
                groups.join(number, ~wire)
    for number in small:
        for wire, _ in costs.touched[number]:
            own = costs.wires[wire]
            ends = (own.home, *(use for use in own.uses if isinstance(use, LocalLayout)))
            for home in filter(None, ends):
                homes[groups.first(number)].setdefault(own.tensor.shape, home)
    found: dict[int, dict[int, FactorAxes]] = defaultdict(dict)
    for number in small:
        known = homes[groups.first(number)]
        places = [
            (place, known[costs.wires[wire].tensor.shape])
            for wire, place in costs.touched[number]
            if costs.wires[wire].tensor.shape in known
        ]
        found[groups.first(number)][number] = costs.splits[number].along(places)
    yield from found.values()


def _is_small(costs: Costs, number: int) -> bool:
    """Return whether an op is pointwise or sums over dimensions, and all its tensors are small."""
    wires = (costs.wires[wire].tensor for wire, _ in costs.touched[number])
    return costs.ops[number].kind in (*POINTWISE, "reduce_sum") and all(
        tensor.bytes(LocalLayout(((),) * len(tensor.shape))) <= SMALL for tensor in wires
    )


class _Groups:
    """Sets of connected items. One item of each set stands for the set."""

    def __init__(self) -> None:
        self.parent: dict[int, int] = {}

    def first(self, item: int) -> int:
        """Return the item that stands for the set of `item`."""
        while (above := self.parent.setdefault(item, item)) != item:
            item = above
        return item

    def join(self, one: int, other: int) -> None:
        self.parent[self.first(one)] = self.first(other)
