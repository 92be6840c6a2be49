"""Layouts and tiles: symbolic and concrete forms against brute force, both splits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import sympy
from cases import random_reshard
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwright as sw
from shardwright.ir import Digit, Mesh
from shardwright.ir.algebra.index import Index, evaluate
from shardwright.ir.layout import DimLayout, Layout, digits_apart, merge_digits
from shardwright.ir.tiles import DimTiles


def chunks(extent: int, sizes: tuple[int, ...]) -> list[list[int]]:
    """Nested chunking as torch.chunk does it: chunk, then chunk the chunk."""
    pieces = [list(range(extent))]
    for size in sizes:
        cut = []
        for piece in pieces:
            length = -(-len(piece) // size)
            cut += [piece[i * length : (i + 1) * length] for i in range(size)]
        pieces = cut
    return pieces


def dim(extent: int, sizes: tuple[int, ...], split: str) -> DimLayout:
    """A dimension split by the digits of a mesh with axes of these sizes."""
    strides = [int(np.prod(sizes[i + 1 :])) for i in range(len(sizes))]
    digits = tuple(Digit(stride, size) for stride, size in zip(strides, sizes, strict=True))
    return DimLayout(extent, digits, "nested" if split == "nested" else "flat")


def held(layout: DimLayout) -> list[list[int]]:
    low, high = layout.intervals
    return [list(range(a, b)) for a, b in zip(low.tolist(), high.tolist(), strict=True)]


@pytest.mark.parametrize("sizes", [(2, 2), (3, 2), (2, 3), (2, 2, 2), (4,), (1, 3)])
@pytest.mark.parametrize("extent", range(1, 30))
def test_nested_intervals_and_owners(sizes: tuple[int, ...], extent: int) -> None:
    layout = dim(extent, sizes, "nested")
    assert held(layout) == chunks(extent, sizes)
    owners = [index for index, piece in enumerate(chunks(extent, sizes)) for _ in piece]
    assert [layout.owner(element) for element in range(extent)] == owners
    assert layout.owner(np.arange(extent)).tolist() == owners


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("extent", range(1, 16))
def test_flat_intervals_and_owners(parts: int, extent: int) -> None:
    layout = dim(extent, (parts,), "flat")
    assert held(layout) == chunks(extent, (parts,))
    for index, piece in enumerate(held(layout)):
        assert all(layout.owner(element) == index for element in piece)


def test_flat_and_nested_differ_on_31_of_64_sizes() -> None:
    """Mixing the two conventions on a 2x2 split corrupts almost half of all sizes."""
    differ = [
        k for k in range(1, 65) if held(dim(k, (2, 2), "flat")) != held(dim(k, (2, 2), "nested"))
    ]
    assert len(differ) == 31


def test_five_rows_on_two_by_two() -> None:
    """pytorch #194457: a (5, 3) tensor over a 2x2 mesh."""
    sizes = {split: [len(p) for p in held(dim(5, (2, 2), split))] for split in ("flat", "nested")}
    assert sizes == {"nested": [2, 1, 1, 1], "flat": [2, 2, 1, 0]}


def test_neighbouring_digits_merge() -> None:
    assert merge_digits((Digit(4, 2), Digit(2, 2), Digit(1, 2))) == (Digit(1, 8),)
    assert merge_digits((Digit(1, 2), Digit(2, 2))) == (Digit(1, 2), Digit(2, 2))
    assert merge_digits((Digit(7, 1), Digit(2, 3))) == (Digit(2, 3),)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**9))
def test_symbolic_forms_are_the_concrete_ones(seed: int) -> None:
    check_forms(seed)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_so_are_more_of_them(seed: int) -> None:
    check_forms(seed)


def check_forms(seed: int) -> None:
    """A formula simplified by the algebra has the values of the formula that computes."""
    reshard = random_reshard(seed)
    layout = Layout.of(reshard.source, reshard.shape, reshard.source_split)
    position = Index("position", layout.mesh.size)
    positions = np.arange(layout.mesh.size)
    ends = [end for pair in layout.box(position) for end in pair]
    values = [evaluate(end, {position: positions}) + 0 * positions for end in ends]
    expected = layout.boxes().reshape(layout.mesh.size, -1)
    np.testing.assert_array_equal(np.array(values).reshape(len(ends), -1).T, expected)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**9))
def test_position_is_the_inverse_of_shard_and_replica(seed: int) -> None:
    check_inverse(seed)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**9))
def test_it_is_the_inverse_of_more(seed: int) -> None:
    check_inverse(seed)


def check_inverse(seed: int) -> None:
    """Of every position."""
    reshard = random_reshard(seed)
    layout = Layout.of(reshard.target, reshard.shape, reshard.target_split)
    positions = np.arange(layout.mesh.size)
    back = layout.position(layout.index(positions), layout.replica(positions))
    np.testing.assert_array_equal(back + 0 * positions, positions)


def brute_tiles(tiles: DimTiles) -> list[tuple[int, int, int, int]]:
    """(source shard, target shard, low, high) of all intersections, by sets of elements."""
    found = []
    for (b, target), (a, source) in itertools.product(
        enumerate(held(tiles.target)), enumerate(held(tiles.source))
    ):
        shared = sorted(set(source) & set(target))
        if shared:
            found.append((a, b, shared[0], shared[-1] + 1))
    return sorted(found, key=lambda tile: tile[2])


@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 60),
    *[st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)] * 2,
    *[st.sampled_from(["flat", "nested"])] * 2,
)
def test_tiles_partition_the_dimension(
    extent: int, source: tuple[int, ...], target: tuple[int, ...], first: str, second: str
) -> None:
    """Exact, disjoint, covering; peers, grain and period as stated."""
    tiles = DimTiles(dim(extent, source, first), dim(extent, target, second))
    pairs = tiles.pairs
    found = list(
        zip(*(x.tolist() for x in (pairs.source, pairs.target, pairs.low, pairs.high)), strict=True)
    )
    expected = brute_tiles(tiles)
    assert found == expected
    for a, b, low, high in expected:
        assert tiles.tile(a, b) == (low, high)
        assert a in tiles.peers_of_target(b)
        assert b in tiles.peers_of_source(a)
        assert low % tiles.grain == 0
        assert (high - low) % tiles.grain == 0 or high == extent
    most = max((len(tiles.peers_of_target(b)) for b in range(tiles.target.parts)), default=0)
    assert tiles.max_peers_of_target == most
    assert tiles.max_width == max(high - low for _, _, low, high in expected)


@pytest.mark.parametrize(("source", "target"), [(2, 3), (4, 6), (5, 5), (8, 3), (1, 7)])
def test_cut_pattern_repeats(source: int, target: int) -> None:
    """With g = gcd(S, T): period S*T/g, S/g + T/g - 1 tiles in it, all widths multiples of g."""
    g = int(np.gcd(source, target))
    period = source * target // g
    extent = 3 * period
    tiles = DimTiles(
        dim(extent, (extent // source,), "flat"), dim(extent, (extent // target,), "flat")
    )
    assert tiles.period == period
    assert tiles.grain == g
    low, width = tiles.pairs.low, tiles.pairs.width
    in_period = [
        sorted(zip(low[k].tolist(), width[k].tolist(), strict=True))
        for k in (low // period == n for n in range(3))
    ]
    assert len(in_period[0]) == tiles.tiles_per_period == source // g + target // g - 1
    shifted = [(at + period, size) for at, size in in_period[0]]
    assert in_period[1] == shifted


def test_divisors_of_tiles_are_proved() -> None:
    """The algebra proves what the bounds promise: starts of tiles divide by gcd(S, T)."""
    from shardwright.ir.algebra.bounds import divisor

    mesh = Mesh({"x": 4, "y": 2})
    tiles = DimTiles(
        Layout.of(mesh.sharding('[{"x"}]'), (96,), "flat").dims[0],
        Layout.of(mesh.sharding('[{"y"}]'), (96,), "flat").dims[0],
    )
    low, high = tiles.tile(Index("a", 4), Index("b", 2))
    assert (divisor(low), divisor(high)) == (24, 24) == (tiles.grain, tiles.grain)
    assert divisor(sympy.Integer(0)) == 0


@pytest.mark.parametrize("sizes", [(2, 2, 2), (3, 2, 2), (2, 3, 3)])
@pytest.mark.parametrize("target", ["[{}]", '[{"z", "x", "y"}]'])
def test_a_nested_split_of_few_elements_is_emitted(sizes: tuple[int, ...], target: str) -> None:
    """Chunks of chunks of which most are empty: no operand of a division is negative."""
    mesh = sw.Mesh(dict(zip("xyz", sizes, strict=True)))
    for extent in range(1, 7):
        sides = mesh.sharding('[{"x", "y", "z"}]'), mesh.sharding(target)
        reshard = sw.Reshard((extent,), "int8", *sides, source_split="nested")
        assert sw.emit(reshard, ("jax_xla", "triton_gpu")).files("case")


def test_digits_that_others_have() -> None:
    """Wholly, in part, or not at all; where they do not divide, they are others."""
    whole = (Digit(1, 24),)
    assert digits_apart(whole, (Digit(4, 6),)) == ((Digit(4, 6),), (Digit(1, 4),))
    assert digits_apart(whole, (Digit(12, 2), Digit(2, 3))) == (
        (Digit(12, 2), Digit(2, 3)),
        (Digit(6, 2), Digit(1, 2)),
    )
    assert digits_apart((Digit(1, 6),), (Digit(1, 4),)) == ((), (Digit(1, 6),))
    assert digits_apart((Digit(4, 6),), ()) == ((), (Digit(4, 6),))
