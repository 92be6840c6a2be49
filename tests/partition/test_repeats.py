"""Stretches that repeat in a list of ops."""

from __future__ import annotations

import pytest

from shardwright.codegen.partition.local.repeats import SHORTEST, Item, Repeat, repeats


def layered(copies: int, wired: int = -1) -> list[Item]:
    """Items of copies of one stretch, each taking what the one before it gives; in copy `wired`
    an item takes another value of its copy."""
    items, last = [Item("first", (), (0,))], 0
    for copy in range(copies):
        own = [last]
        for number in range(SHORTEST + 4):
            back = 3 if copy == wired and number == 9 else 1
            own.append(1000 * (copy + 1) + number)
            items.append(Item(number, (own[-1 - back],), (own[-1],)))
        last = own[-1]
    return [*items, Item("last", (last,), (-1,))]


def test_layers_are_found() -> None:
    assert repeats(layered(5)) == (Repeat(1, SHORTEST + 4, 5),)
    period = SHORTEST + 4
    assert list(repeats(layered(3))[0].places(2)) == [3, 3 + period, 3 + 2 * period]


def test_a_layer_that_is_wired_otherwise_is_not_one_of_them() -> None:
    period = SHORTEST + 4
    assert repeats(layered(5, wired=2)) == (Repeat(1, period, 2), Repeat(1 + 3 * period, period, 2))
    assert repeats(layered(5, wired=0)) == (Repeat(1 + period, period, 4),)


@pytest.mark.parametrize("copies", [0, 1])
def test_what_stands_once_is_not_repeated(copies: int) -> None:
    assert repeats(layered(copies)) == ()


def test_fewer_copies_than_asked_for() -> None:
    assert repeats(layered(3), fewest=4) == ()
    assert len(repeats(layered(4), fewest=4)) == 1
