"""Time of an all-to-all that sends to a few receivers at a time, by a model."""

from __future__ import annotations

import math

import pytest

from bench.receivers import RESULT, TORI, Hops, hops, order, over_least, rates


def test_hops_are_the_shorter_way_around() -> None:
    assert hops(7, (8,)) == {(0, -1): 1}
    assert hops(4, (8,)) == {(0, 1): 2, (0, -1): 2}
    assert hops(1 + 8 * 6, (8, 8)) == {(1, 1): 1, (0, -1): 2}


def test_links_are_shared_fairly() -> None:
    """A flow that shares no link has one of its own; two of one direction have half each."""
    one, other = Hops({(0, 1): 1}), Hops({(1, 1): 2})
    assert rates([one, one, other]) == [0.5, 0.5, 0.5]
    assert rates([one, one, Hops({(1, 1): 1})]) == [0.5, 0.5, 1]


def test_one_at_a_time_leaves_links_idle() -> None:
    """On a ring of five each way takes three hops at most, if both are taken at once."""
    assert over_least([1, 2, 3, 4], (5,), at_a_time=1) == 2
    assert over_least([1, 2, 3, 4], (5,), at_a_time=4) == 1


@pytest.mark.parametrize("sizes", [(8,), (4, 4), (4, 8)])
def test_the_order_of_kernels_keeps_links_at_work(sizes: tuple[int, ...]) -> None:
    pytest.importorskip("jax")
    offsets = order(math.prod(sizes))
    assert sorted(offsets) == list(range(1, math.prod(sizes)))
    assert over_least(offsets, sizes) <= 1.05


def test_the_table_says_less_than_before() -> None:
    rows = [line.strip("| ").split(" | ") for line in RESULT.read_text().splitlines()]
    table = {torus: (float(now), float(before)) for torus, now, before in rows[7:]}
    assert list(table) == ["x".join(map(str, sizes)) for sizes in TORI]
    assert all(now <= min(before, 1.25) for now, before in table.values())
