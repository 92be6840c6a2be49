"""Find the simplest cut of one dimension that gives each mesh position its range.

Cuts are tried in this order, along fewer axes first, then along smaller ones; the first cut that
fits wins:

1. whole; equal chunks; balanced; nested; `sized(S)` where there is padding
2. the same with more shards than devices, reversed, and `sized(S, a)`
3. the blocks that a cut of another dimension touches
4. boundaries, then a table

Each cut is tried on the whole dimension, then only on the elements that any device has.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from shardwright.ir.arrays import Integers
from shardwright.ir.axes import AxisRef, merged, overlaps
from shardwright.ir.dim_cuts import DimCut
from shardwright.ir.errors import InputError
from shardwright.ir.layout import merge_digits, read_digits
from shardwright.ir.mesh import Mesh

Range = tuple[int, int] | None
"""The half-open range of a dimension at a mesh position; None if any range is allowed."""

Window = tuple[int, int] | None
"""The half-open range of a dimension that contains all elements at all positions; None for the
whole dimension."""

PLAIN, SHIFTED, ANY = range(3)
"""How many steps of the order above to try: step 1, steps 1 and 2, or all steps."""

MOST_REFS = 3


@dataclass(frozen=True)
class DimFit:
    """Ranges of a dimension to fit. `pads`: the number of elements that each position stores,
    padding included; `others`: extents of other dimensions, whose blocks may be cut."""

    mesh: Mesh
    extent: int
    ranges: tuple[Range, ...]  # by mesh position
    pads: int | None = None
    others: tuple[int, ...] = ()

    def cuts(self, most: int = ANY) -> Iterator[DimCut]:
        """Yield the cuts that fit, simplest first."""
        steps = (self._plain, self._shifted, self._covers, self._listed)
        seen: set[DimCut] = set()
        for step in steps[: (1, 2, 4)[most]]:
            for refs, places, window in self._choices():
                for cut in step(refs, places, window):
                    if cut not in seen and self._fits(cut):
                        seen.add(cut)
                        yield cut

    def _choices(self) -> Iterator[tuple[tuple[AxisRef, ...], list[Range], Window]]:
        """Yield axes, the ranges along them, and a window: first no axes, then sets of axes."""
        for some in (False, True):
            for window in self._windows:
                for refs, places in self._axes(window):
                    if bool(refs) is some:
                        yield refs, places, window

    @cached_property
    def _windows(self) -> list[Window]:
        held = [each for each in self.ranges if each is not None and each[0] < each[1]]
        inner = (min(low for low, _ in held), max(high for _, high in held)) if held else None
        return [None] if inner in (None, (0, self.extent)) else [None, inner]

    def _axes(self, window: Window) -> Iterator[tuple[tuple[AxisRef, ...], list[Range]]]:
        """Yield sets of axes that determine the ranges, each with the range at every coordinate
        along the axes."""
        for refs, by_position, count in _choices(self.mesh):
            places: list[Range] = [None] * count
            for place, each in zip(by_position, self.ranges, strict=True):
                if each is None:
                    continue
                if places[place] not in (None, each):
                    break
                places[place] = each
            else:
                low = (window or (0, 0))[0]
                yield (
                    refs,
                    [each and (each[0] - low, each[1] - low) for each in places],
                )

    def _fits(self, cut: DimCut) -> bool:
        try:
            bound = cut.bind(self.extent, self.mesh)
        except InputError:
            return False
        if (bound.pads is None) != (self.pads is None):
            return False
        low, high = (np.asarray(end) for end in bound.interval(np.arange(self.mesh.size)))
        matters, lows, highs = self._wanted
        wrong = (low != lows) | (high != highs)
        return not (matters & wrong & ((low < high) | (lows < highs))).any()

    @cached_property
    def _wanted(self) -> tuple[npt.NDArray[np.bool_], Integers, Integers]:
        """For each mesh position, in three arrays: whether the range matters, its start and its
        end."""
        ends = np.array([each or (0, 0) for each in self.ranges], dtype=np.int64)
        matters = np.array([each is not None for each in self.ranges], dtype=np.bool_)
        return matters, ends[:, 0], ends[:, 1]

    def _inside(self, window: Window) -> int:
        return self.extent if window is None else window[1] - window[0]

    def _plain(
        self, refs: tuple[AxisRef, ...], places: list[Range], window: Window
    ) -> Iterator[DimCut]:
        flat = DimCut(refs, window=window)
        if self.pads is not None:
            yield replace(flat, rule="sized", numbers=(self.pads,))
            return
        yield flat
        if refs:
            yield replace(flat, rule="balanced")
        if len(refs) > 1:
            yield replace(flat, rule="nested")

    def _shifted(
        self, refs: tuple[AxisRef, ...], places: list[Range], window: Window
    ) -> Iterator[DimCut]:
        held = [each for each in places if each is not None and each[0] < each[1]]
        if not refs or not held:
            return
        plain = list(self._plain(refs, places, window))
        yield from (replace(each, reversed=True) for each in plain if each.rule != "nested")
        inside, width = self._inside(window), max(high - low for low, high in held)
        count = max(-(-inside // width), len(places))
        shards = [count, *(-(-inside // width) + more for more in (1, 2))]
        for many, each in itertools.product(dict.fromkeys(shards), plain):
            if many > len(places) and each.rule != "nested":
                yield replace(each, into=many)
                yield replace(each, into=many, reversed=True)
        if self.pads is None:
            flat = DimCut(refs, window=window)
            for place, each in enumerate(places):
                offset = place * width - each[0] if each is not None else -1
                if each is not None and each[0] < each[1] and each[0] > 0 and offset >= 0:
                    yield replace(flat, rule="sized", numbers=(width, offset))
                    break
            last = max(high for _, high in held)
            for place, each in enumerate(places):  # a first shard that is cut off
                if each is not None and each[0] == 0 < each[1] < last:
                    offset = (place + 1) * width - each[1]
                    if offset >= 0:
                        yield replace(flat, rule="sized", numbers=(width, offset))

    def _covers(
        self, refs: tuple[AxisRef, ...], places: list[Range], window: Window
    ) -> Iterator[DimCut]:
        ends = [each for each in places if each is not None]
        overlap = any(a[1] > b[0] and a != b for a, b in itertools.pairwise(sorted(ends)))
        if not refs or not overlap or self.pads is not None:
            return
        inside = self._inside(window)
        for covered in self.others:
            if covered <= inside:
                continue
            least = -(-covered // inside)
            most = covered if inside == 1 else (covered - 1) // (inside - 1)
            powers = [2**n for n in range(least.bit_length() + 1) if least <= 2**n <= most]
            for block in dict.fromkeys([*powers, least, most]):
                yield DimCut(refs, "cover", (block, covered), window=window)

    def _listed(
        self, refs: tuple[AxisRef, ...], places: list[Range], window: Window
    ) -> Iterator[DimCut]:
        if not refs or self.pads is not None:
            return
        inside = self._inside(window)
        held = sorted({each for each in places if each is not None and each[0] < each[1]})
        if any(a[1] > b[0] for a, b in itertools.pairwise(held)):
            return
        ends = sorted({0, inside, *(end for each in held for end in each)})
        if ends[0] < 0 or ends[-1] > inside:
            return
        if len(ends) - 1 <= len(places):
            wanted = list(_filled(places, inside))
            if wanted[0] == 0 and all(a <= b for a, b in itertools.pairwise(wanted)):
                yield DimCut(refs, "listed", tuple(wanted), window=window)
        width = max((high - low for low, high in held), default=1)
        table = tuple(
            None if each is None or each[0] >= each[1] else each[0] // width for each in places
        )
        yield DimCut(refs, into=-(-inside // width), table=table, window=window)
        numbers = {low: shard for shard, low in enumerate(ends[:-1])}
        table = tuple(
            None if each is None or each[0] >= each[1] else numbers[each[0]] for each in places
        )
        yield DimCut(refs, "listed", tuple(ends), table=table, window=window)


def _filled(places: Sequence[Range], inside: int) -> Iterator[int]:
    """Yield the boundaries of N shards that give each coordinate its range, if such boundaries
    exist."""
    yield 0
    end = 0
    for each in places[:-1]:
        if each is not None and each[0] < each[1]:
            end = each[1]
        yield end
    yield inside


@lru_cache(maxsize=64)
def _choices(mesh: Mesh) -> tuple[tuple[tuple[AxisRef, ...], tuple[int, ...], int], ...]:
    """Return sets of axes that may cut a dimension, with each position's coordinate along them and
    the number of coordinates: fewer axes first, then fewer coordinates."""
    single = [
        mesh.canonical(AxisRef(name, pre, size))
        for name, extent in mesh.axes
        for pre in range(1, extent + 1)
        for size in range(2, extent + 1)
        if extent % (pre * size) == 0
    ]
    found = []
    for count in range(MOST_REFS + 1):
        for refs in itertools.permutations(single, count):
            if any(overlaps(a, b, mesh.sizes) for a, b in itertools.combinations(refs, 2)):
                continue
            if len(merged(refs, mesh.sizes)) < len(refs):
                continue
            digits = merge_digits(tuple(map(mesh.digit, refs)))
            places = tuple(read_digits(digits, np.arange(mesh.size, dtype=np.int64)).tolist())
            found.append((refs, places, math.prod(map(mesh.full_size, refs))))
    return tuple(sorted(found, key=lambda each: (len(each[0]), each[2])))
