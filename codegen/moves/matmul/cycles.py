"""Order devices in a ring: cycles through a box of a torus in which each step is one link.

A box of devices in several dimensions has such a cycle unless all its extents are odd. The cycle
traverses the rows back and forth, skipping the first device of each row, and returns along these
first devices. In one dimension without a link between the ends, the cycle goes up over the even
positions and down over the odd positions, so each step spans at most two links.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from shardwright.ir.arrays import Integers

Cell = tuple[int, ...]
Path = list[Cell]


def orders(places: Integers) -> Iterator[tuple[int, ...]]:
    """Yield orders of the devices of a ring: cycles through the box that the devices fill. Yield
    nothing if the devices do not fill a box. `places`: the coordinates of the devices, [devices,
    dimensions]."""
    rows: list[list[int]] = places.tolist()
    spans = [sorted(set(along)) for along in zip(*rows, strict=True)]
    if math.prod(map(len, spans)) != len(rows):
        return
    cells = [tuple(span.index(c) for span, c in zip(spans, row, strict=True)) for row in rows]
    numbers = {cell: number for number, cell in enumerate(cells)}
    sizes = [len(span) for span in spans]
    for path in _cycles(sizes):
        yield tuple(numbers[cell] for cell in path)


def _cycles(sizes: Sequence[int]) -> Iterator[Path]:
    """Yield cycles through a box of the given sizes, one for each dimension of more than one cell:
    the rows are paths through the other dimensions."""
    wide = [axis for axis, size in enumerate(sizes) if size > 1]
    for last in wide:
        rest = [axis for axis in wide if axis != last]
        path = _snake([sizes[axis] for axis in rest])
        for cycle in _through(len(path), sizes[last]):
            found = []
            for along, own in cycle:
                cell = dict(zip(rest, path[along], strict=True)) | {last: own}
                found.append(tuple(cell.get(axis, 0) for axis in range(len(sizes))))
            yield found


def _snake(sizes: Sequence[int]) -> Path:
    """Return a path through all cells of a box in which successive cells are neighbours."""
    found: Path = [()]
    for size in sizes:
        ways = itertools.cycle((range(size), range(size - 1, -1, -1)))
        found = [(*cell, own) for cell, way in zip(found, ways, strict=False) for own in way]
    return found


def _through(rows: int, columns: int) -> Iterator[list[tuple[int, int]]]:
    """Yield a cycle through a grid as (row, column) pairs, or nothing if there is none."""
    if rows == 1 or columns == 1:
        long = max(rows, columns)
        folded = [*range(0, long, 2), *reversed(range(1, long, 2))]
        yield [(place, 0) if columns == 1 else (0, place) for place in folded]
    elif rows % 2 == 0:
        yield _around(rows, columns)
    elif columns % 2 == 0:
        yield [(row, column) for column, row in _around(columns, rows)]


def _around(rows: int, columns: int) -> list[tuple[int, int]]:
    """Return a cycle through a grid with an even number of rows, as (row, column) pairs."""
    forth, back = range(1, columns), range(columns - 1, 0, -1)
    found = [(row, column) for row in range(rows) for column in (back if row % 2 else forth)]
    return [*found, *((row, 0) for row in reversed(range(rows)))]
