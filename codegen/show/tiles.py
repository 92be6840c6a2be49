"""The part of a derivation about tiles: ranges for fixed devices, peers, the period, divisors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import sympy

from shardwright.codegen.show.formulas import listed
from shardwright.codegen.show.maps import ReshardMaps
from shardwright.codegen.show.notation import text
from shardwright.codegen.show.where import Where, where_lines
from shardwright.ir.algebra.identities import simplify
from shardwright.ir.algebra.index import Index, Value, floor_div, maximum, minimum
from shardwright.ir.exchange import Exchange
from shardwright.ir.layout import DimLayout
from shardwright.ir.tiles import DimTiles


def tile_sections(exchange: Exchange, symbols: ReshardMaps, numbers: ReshardMaps) -> list[str]:
    """Return the sections of a derivation about the ranges of tiles, their shards, and their
    cuts."""
    tiles = exchange.dims[exchange.source.hidden :]
    if not tiles:
        return ["", "Tiles", "    the one element is the one tile"]
    source, target = symbols.source, symbols.target
    lines = [
        "",
        f"Tiles: for fixed ({listed(source.coordinates)}) and ({listed(target.coordinates)}), "
        f"what is the range of ({listed(source.local)}, {listed(target.local)})?",
        *_indented(_general()),
    ]
    for axis in range(len(tiles)):
        lines += _indented(_dimension(axis, symbols, numbers))
    lines += ["", "Peers: which shards meet?", *_indented(_general_peers())]
    for axis, dim in enumerate(tiles):
        lines += _indented(_peers(axis, dim))
    lines += ["", "Cuts: where, and how often do they repeat? g = gcd(S, T)"]
    for axis, dim in enumerate(tiles):
        lines += _indented(_cuts(axis, dim))
    return [*lines, *_indented(_strides(exchange))]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _general() -> list[str]:
    return [
        "Along a dimension of extent K, let a be the source's shard index and S its shard size,",
        "b and T the target's. Then, with no tile where a range is empty,",
        "    i in [max(a * S, b * T), min(a * S + S, b * T + T, K))",
        "    k = i - a * S in [max(0, b * T - a * S), min(S, b * T - a * S + T, K - a * S))",
        "    u = i - b * T in [max(0, a * S - b * T), min(T, a * S - b * T + S, K - b * T))",
    ]


def _dimension(axis: int, symbols: ReshardMaps, numbers: ReshardMaps) -> list[str]:
    source, target = numbers.source, numbers.target
    dims = source.dims[axis], target.dims[axis]
    shards = source.shard[axis], target.shard[axis]
    sizes = [
        f"{letter} = {text(own.dims[axis].size)} = {dim.size}"
        for letter, own, dim in zip("ST", (symbols.source, symbols.target), dims, strict=True)
    ]
    names = [text(side.shard[axis]) for side in (symbols.source, symbols.target)]
    heading = f"dimension {axis}: a = {names[0]}, {sizes[0]}; b = {names[1]}, {sizes[1]}"
    if all(dim.is_flat for dim in dims):
        return [heading, *_flat_ranges(axis, numbers, shards, dims)]
    return [heading, *_nested_ranges(axis, numbers, shards, dims)]


def _flat_ranges(
    axis: int,
    numbers: ReshardMaps,
    shards: tuple[Value, Value],
    dims: tuple[DimLayout, DimLayout],
) -> list[str]:
    starts = [index * dim.size for index, dim in zip(shards, dims, strict=True)]
    ends = [start + dim.size for start, dim in zip(starts, dims, strict=True)]
    ranges = (
        (numbers.source.elements[axis], 0),
        (numbers.source.local[axis], starts[0]),
        (numbers.target.local[axis], starts[1]),
    )
    ends = list(dict.fromkeys([*map(simplify, ends), sympy.Integer(dims[0].extent)]))
    return [
        f"    {index.name} in [{_extremum(maximum, start, starts)}, "
        f"{_extremum(minimum, start, ends)})"
        for index, start in ranges
    ]


def _extremum(
    function: Callable[[Value, Value], Value], start: Value, ends: Sequence[Value]
) -> str:
    """Return the minimum or maximum of the ends relative to a start, omitting ends that are
    never the extremum."""
    total = simplify(ends[0] - start)
    for end in ends[1:]:
        total = function(total, simplify(end - start))
    return text(total)


def _nested_ranges(
    axis: int,
    numbers: ReshardMaps,
    shards: tuple[Value, Value],
    dims: tuple[DimLayout, DimLayout],
) -> list[str]:
    lets = tuple(Where(dim.levels, letter) for dim, letter in zip(dims, ("_s", "_t"), strict=True))
    (low, high), (other_low, other_high) = (
        dim.interval(index, where.let) for dim, index, where in zip(dims, shards, lets, strict=True)
    )
    ends = [text(end) for end in (low, high, other_low, other_high)]
    i = numbers.source.elements[axis]
    k, u = numbers.source.local[axis].name, numbers.target.local[axis].name
    return [
        f"    {i.name} in [max({ends[0]}, {ends[2]}), min({ends[1]}, {ends[3]}))",
        f"    {k} = {text(i - low)}, {u} = {text(i - other_low)}, where",
        *(f"        {line}" for line in where_lines(lets, ends)),
    ]


def _general_peers() -> list[str]:
    return [
        "target shard b meets source shards "
        "(b * T) floordiv S to (min(b * T + T, K) - 1) floordiv S, none if b * T >= K",
        "source shard a meets target shards "
        "(a * S) floordiv T to (min(a * S + S, K) - 1) floordiv T, none if a * S >= K",
    ]


def _peers(axis: int, tiles: DimTiles) -> list[str]:
    if not tiles.is_flat:
        return [
            f"dimension {axis}: the shards that hold the first and the last element of the range, "
            "by the inverse map, and those between"
        ]
    source, target = tiles.source, tiles.target
    return [
        f"dimension {axis}: {_peer_range('target', 'b', target, 'source', source)}",
        f"             {_peer_range('source', 'a', source, 'target', target)}",
    ]


def _peer_range(side: str, letter: str, own: DimLayout, which: str, other: DimLayout) -> str:
    index: Value = Index(letter, own.parts) if own.parts > 1 else 0
    first = floor_div(index * own.size, other.size)
    last = floor_div(minimum(index * own.size + own.size, own.extent) - 1, other.size)
    ends = list(dict.fromkeys(text(simplify(end)) for end in (first, last)))
    shards = f"{which} shard{'s' if len(ends) > 1 else ''} {' to '.join(ends)}"
    none = f", none if {letter} * {own.size} >= {own.extent}" if _has_empty(own) else ""
    return f"{side} shard {text(index)} meets {shards}{none}"


def _has_empty(dim: DimLayout) -> bool:
    return (dim.parts - 1) * dim.size >= dim.extent


def _cuts(axis: int, tiles: DimTiles) -> list[str]:
    s, t, extent = tiles.source.size, tiles.target.size, tiles.source.extent
    if not tiles.is_flat:
        return [
            f"dimension {axis}: a split is nested, the cuts need not repeat",
            f"             {_divisors(tiles.grain, extent)}",
        ]
    g, period = math.gcd(s, t), math.lcm(s, t)
    beyond = ", which is more than the extent" if period > extent else ""
    return [
        f"dimension {axis}: g = gcd({s}, {t}) = {g}; the cuts repeat every S * T / g = {period}"
        f"{beyond}",
        f"             S / g + T / g - 1 = {tiles.tiles_per_period} tiles a period; "
        f"{_divisors(tiles.grain, extent)}",
    ]


def _divisors(grain: int, extent: int) -> str:
    last = "" if extent % grain == 0 else f" but that of a tile that ends at {extent}"
    return f"starts are multiples of {grain}, every width{last} too"


def _strides(exchange: Exchange) -> list[str]:
    hidden = exchange.source.hidden
    sides = (
        ("source", exchange.source.dims[hidden:]),
        ("target", exchange.target.dims[hidden:]),
    )
    return [
        f"row-major strides of the {side} shards are multiples of {_stride_divisors(dims)}"
        for side, dims in sides
    ]


def _stride_divisors(dims: tuple[DimLayout, ...]) -> str:
    divisors = [_size_divisor(dim) for dim in dims]
    strides = [math.prod(divisors[axis + 1 :]) for axis in range(len(dims))]
    return ", ".join(map(str, strides))


def _size_divisor(dim: DimLayout) -> int:
    if dim.is_flat:
        return math.gcd(dim.size, dim.extent)
    low, high = dim.intervals
    return int(np.gcd.reduce(high - low))
