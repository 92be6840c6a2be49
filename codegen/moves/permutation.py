"""The transfers of a permute."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from shardwright.codegen.ops.layout import LocalLayout, Names


def permutation(
    axes: Names, sizes: Mapping[str, int], source: LocalLayout, target: LocalLayout
) -> list[tuple[int, int]]:
    """Return (sender, receiver) pairs of positions along `axes`, flattened: each device sends its
    shard to one device that needs it."""
    places = list(itertools.product(*(range(sizes[name]) for name in axes)))
    known = [dict(zip(axes, place, strict=True)) for place in places]
    holders = {_held(source, at, sizes): number for number, at in enumerate(known)}
    return [(holders[_held(target, at, sizes)], number) for number, at in enumerate(known)]


def _held(layout: LocalLayout, at: Mapping[str, int], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the index of the shard of the device at a position, and the device's index among the
    devices with that shard."""
    free = tuple(name for name in at if name not in layout.used)
    return tuple(_read(names, at, sizes) for names in (*layout.dims, free))


def _read(names: Names, at: Mapping[str, int], sizes: Mapping[str, int]) -> int:
    number = 0
    for name in names:
        number = number * sizes[name] + at[name]
    return number
