"""Cuts: closed forms over integers, arrays and expressions, against lists of elements."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.ir.algebra.index import Index, evaluate
from shardwright.ir.cuts import Balanced, Cover, Cut, Listed, Nested, Sized
from shardwright.ir.tiles import period, tiles_of, tiles_per_period


def sliced(elements: list[int], ends: list[int]) -> list[list[int]]:
    return [elements[low:high] for low, high in pairwise(ends)]


def chunked(elements: list[int], levels: tuple[int, ...]) -> list[list[int]]:
    if not levels:
        return [elements]
    size = -(-len(elements) // levels[0])
    pieces = [elements[k * size : (k + 1) * size] for k in range(levels[0])]
    return [shard for piece in pieces for shard in chunked(piece, levels[1:])]


@st.composite
def cuts(draw: st.DrawFn, covers: bool = True) -> tuple[Cut, list[list[int]]]:
    """A cut, and the elements of each shard by definition."""
    extent, parts = draw(st.integers(1, 40)), draw(st.integers(1, 7))
    elements = list(range(extent))
    kinds = ["sized", "balanced", "nested", "listed", "window", *["cover"] * covers]
    match draw(st.sampled_from(kinds)):
        case "sized":
            offset = draw(st.integers(0, 15))
            size = -(-(extent + offset) // parts) + draw(st.integers(0, 3))
            stack = [-1] * offset + elements + [-1] * (parts * size)
            held = [stack[k * size : (k + 1) * size] for k in range(parts)]
            shards = [[i for i in shard if i >= 0] for shard in held]
            return Sized(extent, parts, size, offset), shards
        case "balanced":
            return Balanced(extent, parts), [
                shard.tolist() for shard in np.array_split(np.arange(extent), parts)
            ]
        case "nested":
            levels = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
            return Nested(extent, int(np.prod(levels)), levels), chunked(elements, levels)
        case "listed":
            inner = st.lists(st.integers(0, extent), min_size=parts - 1, max_size=parts - 1)
            ends = [0, *sorted(draw(inner)), extent]
            return Listed(extent, parts, tuple(ends)), sliced(elements, ends)
        case "window":
            cut, shards = draw(cuts(covers=False))
            start = draw(st.integers(0, cut.extent - 1))
            count = draw(st.integers(1, cut.extent - start))
            inside = range(start, start + count)
            return cut.window(start, count), [
                [i - start for i in shard if i in inside] for shard in shards
            ]
        case _:
            cut, shards = draw(cuts(covers=False))
            block = draw(st.integers(1, 9))
            touched = [sorted({i // block for i in shard}) for shard in shards]
            return Cover(-(-cut.extent // block), cut.parts, block, cut), touched


def values(expression: Any, symbol: Index, extent: int) -> list[int]:
    found = evaluate(expression, {symbol: np.arange(extent)}) + 0 * np.arange(extent)
    return [int(each) for each in found]


@settings(max_examples=30, deadline=None)
@given(cuts())
def test_closed_forms(case: tuple[Cut, list[list[int]]]) -> None:
    cut, shards = case
    low, high = cut.intervals
    assert [list(range(*ends)) for ends in zip(low, high, strict=True)] == shards
    assert [list(range(*cut.interval(s))) for s in range(cut.parts)] == shards
    owners = [min(s for s, held in enumerate(shards) if i in held) for i in range(cut.extent)]
    assert [cut.owner(i) for i in range(cut.extent)] == owners
    assert (cut.owner(np.arange(cut.extent)) + 0 * low[:1]).tolist() == owners
    local = [shards[owner].index(i) for i, owner in enumerate(owners)]
    assert [cut.locate(i) for i in range(cut.extent)] == list(zip(owners, local, strict=True))
    for first in range(cut.extent):
        for end in range(first + 1, cut.extent + 1):
            met = [s for s, held in enumerate(shards) if {*held} & {*range(first, end)}]
            assert cut.owners(first, end) == (met[0], met[-1])


@settings(max_examples=20, deadline=None)
@given(cuts())
def test_expressions_have_the_values(case: tuple[Cut, list[list[int]]]) -> None:
    cut, _ = case
    shard, element = Index("s", cut.parts), Index("i", cut.extent)
    for found, expected in zip(cut.interval(shard), cut.intervals, strict=True):
        assert values(found, shard, cut.parts) == expected.tolist()
    owners = [cut.owner(i) for i in range(cut.extent)]
    assert values(cut.owner(element), element, cut.extent) == owners


@settings(max_examples=100, deadline=None)
@given(cuts(), cuts())
def test_tiles(source: tuple[Cut, list[list[int]]], target: tuple[Cut, list[list[int]]]) -> None:
    """Every pair of shards that meet, once; their elements are those in both."""
    found = tiles_of(source[0], target[0]) if source[0].extent == target[0].extent else None
    if found is None:
        return
    tiles = {
        (int(s), int(t)): [*range(low, high)]
        for s, t, low, high in zip(found.source, found.target, found.low, found.high, strict=True)
    }
    both = {
        (s, t): sorted({*held} & {*wanted})
        for s, held in enumerate(source[1])
        for t, wanted in enumerate(target[1])
    }
    assert tiles == {pair: shared for pair, shared in both.items() if shared}


@settings(max_examples=50)
@given(*[st.integers(1, 12)] * 2, *[st.integers(0, 12)] * 2)
def test_period(size: int, other: int, offset: int, shift: int) -> None:
    """Cuts at k*S - a and j*T - b, counted over one period after the first cut of both."""
    first, second = Sized(200, 99, size, offset), Sized(200, 99, other, shift)
    length = period(first, second)
    assert length == np.lcm(size, other)
    edges = {k * size - offset for k in range(99)} | {k * other - shift for k in range(99)}
    start = max(offset, shift) + length
    inside = [edge for edge in edges if start <= edge < start + length]
    assert len(inside) == tiles_per_period(first, second)


def test_cuts_that_do_not_repeat_have_no_period() -> None:
    assert period(Balanced(10, 4), Sized(10, 2, 5)) is None
    assert tiles_per_period(Sized(12, 2, 6), Nested(12, 4, (2, 2))) is None
    assert period(Balanced(12, 4), Sized(12, 2, 6)) == 6


@pytest.mark.parametrize(
    ("cut", "intervals"),
    [
        (Sized(10, 4, 4), [(0, 4), (4, 8), (8, 10), (10, 10)]),  # a padded vocabulary
        (Sized(6, 3, 4, 6), [(0, 0), (0, 2), (2, 6)]),  # up of [gate | up], 6 rows each, over 3
        (Balanced(9, 4), [(0, 3), (3, 5), (5, 7), (7, 9)]),
        (Cover(3, 2, 128, Sized(384, 2, 192)), [(0, 2), (1, 3)]),  # both have block 1
    ],
)
def test_known_cuts(cut: Cut, intervals: list[tuple[int, int]]) -> None:
    assert [cut.interval(shard) for shard in range(cut.parts)] == intervals
