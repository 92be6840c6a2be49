"""Derive the rule of a reshape: the factors that both shapes share."""

from __future__ import annotations

import math

from shardwright.codegen.ops.build import Shape
from shardwright.ir.program import Rule


def reshape_rule(source: Shape, target: Shape) -> Rule:
    """Return the rule of a reshape. Factors are matched from the major end and from the minor end.

    In between, where extents have no common divisor, each side has separate factors. `(8,)` to `(2,
    4)` is `([ij])->([i, j])`; `(4, 5, 8)` to `(5, 4, 8)` is `([i, k, m])->([j, l, m])`.
    """
    shared = _Shared(source, target)
    shared.run()
    sizes: list[int] = []
    sides: list[list[tuple[int, ...]]] = [[], []]
    numbers: dict[int, int] = {}
    for side, shape in enumerate((source, target)):
        for dim, extent in enumerate(shape):
            own = extent // math.prod(size for size, _ in shared.all(side, dim))
            middle = [(own, -1)] if own > 1 or extent == 1 else []
            factors = []
            for size, mark in (*shared.major[side][dim], *middle, *shared.minor[side][dim]):
                if mark not in numbers or mark < 0:
                    numbers[mark] = len(sizes)
                    sizes.append(size)
                factors.append(numbers[mark])
            sides[side].append(tuple(factors))
    return Rule(tuple(sizes), (tuple(sides[0]),), (tuple(sides[1]),))


class _Shared:
    """The shared factors of each dimension on each side, as pairs (size, mark). Equal marks denote
    the same factor."""

    def __init__(self, source: Shape, target: Shape) -> None:
        self.shapes = (source, target)
        self.major: list[list[list[tuple[int, int]]]] = [[[] for _ in s] for s in self.shapes]
        self.minor: list[list[list[tuple[int, int]]]] = [[[] for _ in s] for s in self.shapes]
        self.left = [list(source), list(target)]
        self.marks = 0

    def all(self, side: int, dim: int) -> list[tuple[int, int]]:
        return [*self.major[side][dim], *self.minor[side][dim]]

    def run(self) -> None:
        dims = [[d for d, extent in enumerate(shape) if extent != 1] for shape in self.shapes]
        self._match([list(reversed(side)) for side in dims], self.major, append=True)
        self._match(dims, self.minor, append=False)

    def _match(
        self, dims: list[list[int]], places: list[list[list[tuple[int, int]]]], append: bool
    ) -> None:
        """Match the last dimensions of both lists `dims`, removing finished dimensions, until
        nothing is shared. `append`: whether new factors follow those already found, rather than
        precede them."""
        while all(dims):
            ends = dims[0][-1], dims[1][-1]
            size = math.gcd(*(self.left[side][dim] for side, dim in enumerate(ends)))
            if size > 1:
                for side, dim in enumerate(ends):
                    at = len(places[side][dim]) if append else 0
                    places[side][dim].insert(at, (size, self.marks))
                    self.left[side][dim] //= size
                self.marks += 1
            done = [side for side, dim in enumerate(ends) if self.left[side][dim] == 1]
            if not done:
                return
            for side in done:
                dims[side].pop()
