"""Lay out a graph in rows such that every edge leads down and crosses no node.

A node is one row below its lowest dependency, or, without dependencies, right above its first use.
An edge that crosses a row has a placeholder node there. Each row is sorted, several times, by the
mean position of its nodes' neighbours.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

SWEEPS = 8
PASSING = 10.0
"""The width of an edge that crosses a row."""


@dataclass(frozen=True)
class GraphPlaces:
    """The row and x centre of each node, and the x centres of each edge in the rows that it
    crosses. `width`: the width of the drawing. `count`: the number of rows."""

    rows: tuple[int, ...]
    middles: tuple[float, ...]
    routes: tuple[tuple[float, ...], ...]
    width: float
    count: int


def place(widths: Sequence[float], edges: Sequence[tuple[int, int]], gap: float) -> GraphPlaces:
    """Place nodes of these widths. Every edge must lead from a node to a node with a higher
    index."""
    rows = _rows(len(widths), edges)
    made = GraphRows(list(widths), gap)
    for node, row in enumerate(rows):
        made.add(node, row)
    routes = [made.route(source, target, rows) for source, target in edges]
    made.order()
    middles = made.middles()
    low = min((x - made.widths[node] / 2 for node, x in middles.items()), default=0.0)
    high = max((x + made.widths[node] / 2 for node, x in middles.items()), default=0.0)
    at = {node: x - low for node, x in middles.items()}
    return GraphPlaces(
        tuple(rows),
        tuple(at[node] for node in range(len(widths))),
        tuple(tuple(at[node] for node in route) for route in routes),
        high - low,
        len(made.rows),
    )


def _rows(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    rows = [0] * count
    below: dict[int, list[int]] = defaultdict(list)
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        below[source].append(target)
        rows[target] = max(rows[target], rows[source] + 1)
    dependent = {target for _, target in edges}
    for node in range(count):
        if node not in dependent and below[node]:
            rows[node] = min(rows[target] for target in below[node]) - 1
    return rows


@dataclass
class GraphRows:
    """The nodes of each row, including placeholders of crossing edges, from left to right."""

    widths: list[float]
    gap: float
    rows: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    above: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    below: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def add(self, node: int, row: int) -> None:
        """Add a node at the right end of a row."""
        self.rows[row].append(node)

    def route(self, source: int, target: int, rows: Sequence[int]) -> tuple[int, ...]:
        """Add a placeholder for an edge in each row that it crosses, and return the
        placeholders."""
        passed = []
        last = source
        for row in range(rows[source] + 1, rows[target]):
            node = len(self.widths)
            self.widths.append(PASSING)
            self.add(node, row)
            self._connect(last, node)
            passed.append(node)
            last = node
        self._connect(last, target)
        return tuple(passed)

    def _connect(self, upper: int, lower: int) -> None:
        self.below[upper].append(lower)
        self.above[lower].append(upper)

    def order(self) -> None:
        """Order each row by its nodes' neighbours, alternately downwards and upwards."""
        for sweep in range(SWEEPS):
            down = sweep % 2 == 0
            known = self.above if down else self.below
            place = {n: at for row in self.rows.values() for at, n in enumerate(row)}
            for number in sorted(self.rows, reverse=not down):
                row = self.rows[number]
                wanted = {n: _mean([place[each] for each in known[n]], place[n]) for n in row}
                row.sort(key=lambda n: wanted[n])
                place.update((n, at) for at, n in enumerate(row))

    def middles(self) -> dict[int, float]:
        """Return the x centre of every node, as near to its neighbours as its row allows."""
        at: dict[int, float] = {}
        for row in self.rows.values():
            edge = 0.0
            for node in row:
                at[node] = edge + self.widths[node] / 2
                edge += self.widths[node] + self.gap
        for sweep in range(SWEEPS):
            down = sweep % 2 == 0
            for number in sorted(self.rows, reverse=not down):
                row = self.rows[number]
                near = self.above if down else self.below
                wanted = [_mean([at[each] for each in near[n]], at[n]) for n in row]
                at.update(zip(row, self._apart(row, wanted), strict=True))
        return at

    def _apart(self, row: list[int], wanted: list[float]) -> list[float]:
        """Return centres close to the wanted centres, in order, with gaps between the nodes."""
        rooms = [
            (self.widths[a] + self.widths[b]) / 2 + self.gap for a, b in itertools.pairwise(row)
        ]
        right, left = list(wanted), list(wanted)
        for number, room in enumerate(rooms):
            right[number + 1] = max(right[number + 1], right[number] + room)
        for number, room in reversed(list(enumerate(rooms))):
            left[number] = min(left[number], left[number + 1] - room)
        return [(a + b) / 2 for a, b in zip(right, left, strict=True)]


def _mean(numbers: Sequence[float], otherwise: float) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise
