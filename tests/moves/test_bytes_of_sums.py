"""Bytes of sums over the least possible: 1 of a pure reduce-scatter, at most 2 of other pairs.

More where replicas cannot share: beside new unreduced axes, and of extents below their number.
"""

from __future__ import annotations

import pytest
from cases import summed_pairs
from sums import QUICK

from shardwright.codegen.moves import plan
from shardwright.ir import Reshard
from shardwright.ir.plan import Traffic

PAIRS = summed_pairs({"x": 2, "y": 2, "z": 2}, (8, 8))


def traffic_of(reshard: Reshard) -> Traffic:
    """What moves where bytes alone count."""
    return plan(reshard, "direct", topology=QUICK).traffic


def is_reduce_scatter(reshard: Reshard) -> bool:
    """Whether shards are cut further by the unreduced axis, and nothing else changes."""
    (axis,), gained = reshard.source.unreduced, 0
    for before, after in zip(reshard.source.dims, reshard.target.dims, strict=True):
        if after.axes == (*before.axes, axis):
            gained += 1
        elif after.axes != before.axes:
            return False
    return gained == 1


def check(reshards: list[Reshard]) -> float:
    """The largest ratio of all bytes to the least."""
    worst = 1.0
    for reshard in reshards:
        traffic = traffic_of(reshard)
        total, least = traffic.received_total, traffic.bound_received_total
        assert least <= total <= 2 * least
        worst = max(worst, total / least if least else 1.0)
    return worst


def test_a_reduce_scatter_moves_the_least() -> None:
    """In all, into the busiest device, and out of it."""
    scattered = list(filter(is_reduce_scatter, PAIRS))
    assert len(scattered) == 66
    for reshard in scattered[::3]:
        found = traffic_of(reshard)
        assert found.received_total == found.bound_received_total > 0
        assert found.received_max == found.bound_received_max
        assert found.sent_max == found.bound_sent_max


def test_some_pairs_move_at_most_twice_the_least() -> None:
    assert check(PAIRS[::16]) > 1


@pytest.mark.slow
def test_all_pairs_move_at_most_twice_the_least() -> None:
    assert len(PAIRS) == 1617
    assert check(PAIRS) == 1.75
