"""Paths between layouts: the lower bound that guides their search makes no path cost more."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from shardwright.codegen.moves import paths
from shardwright.codegen.moves.paths import Tensor, way
from shardwright.codegen.ops.layout import LocalLayout
from shardwright.codegen.partition.local.rates import rates_of

SHAPE, ITEM, PATHS = (24, 12), 4, 150
TWO, THREE = {"x": 2, "y": 4}, {"x": 2, "y": 2, "z": 3}
CASES = ((TWO, None), (TWO, "v5e:2x4"), (THREE, None))
Bound = Callable[[LocalLayout, LocalLayout, Tensor], float]
least = paths._least


def layouts(sizes: dict[str, int]) -> list[LocalLayout]:
    """Return the layouts of a matrix over these axes, with and without partial results."""
    found = {
        LocalLayout((order[:cut], order[cut:used]), tuple(sorted(order[used:stop])))
        for order in itertools.permutations(sizes)
        for stop in range(len(sizes) + 1)
        for used in range(stop + 1)
        for cut in range(used + 1)
    }
    found |= {replace(each, operator="max") for each in found if each.partial}
    return sorted((each for each in found if fits(each, sizes)), key=str)


def fits(layout: LocalLayout, sizes: dict[str, int]) -> bool:
    parts = (math.prod(sizes[name] for name in names) for names in layout.dims)
    return all(extent % count == 0 for extent, count in zip(SHAPE, parts, strict=True))


def dearer(
    bound: Bound, sizes: dict[str, int], topology: str | None, monkeypatch: pytest.MonkeyPatch
) -> int:
    """Return how many paths, of some that are drawn, cost more with a lower bound than without."""
    draw = random.Random(len(sizes))
    pieces = tuple(sizes.items())
    devices = range(math.prod(sizes.values()))
    tensor = Tensor(SHAPE, ITEM, pieces, rates_of(pieces, devices, topology).pace)
    known = layouts(sizes)
    targets = [each for each in known if each.operator == "sum"]
    count = 0
    for _ in range(PATHS):
        asked = (tuple(draw.sample(known, draw.choice((1, 1, 2)))), draw.choice(targets), tensor)
        prices = []
        for each in (bound, lambda *_: 0.0):
            monkeypatch.setattr(paths, "_least", each)
            prices.append(way.__wrapped__(*asked)[0])
        count += prices[0] > prices[1] + 1e-6
    return count


@pytest.mark.parametrize(("sizes", "topology"), CASES, ids=str)
def test_the_lower_bound_makes_no_path_cost_more(
    sizes: dict[str, int], topology: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dearer(least, sizes, topology, monkeypatch) == 0


def test_a_bound_that_is_too_high_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dearer(lambda *given: 1.5 * least(*given), THREE, None, monkeypatch) > 9
