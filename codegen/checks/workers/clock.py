"""Time several calls on this machine in interleaved turns."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from time import perf_counter


def timed(
    calls: Sequence[Callable[[], object]], *, least: int, most: int, limit: float
) -> list[list[float]]:
    """Return the time of each call in each turn, in seconds, after one untimed turn.

    In every turn each call runs once, in an order that differs from turn to turn. There are at
    least `least` and at most `most` turns; after `least` turns, no turn begins once `limit` seconds
    have passed. Each call must return only when its work is done.
    """
    found: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    orders = itertools.cycle(itertools.permutations(range(len(calls))))
    end = perf_counter() + limit
    for turn, order in zip(range(most), orders, strict=False):
        if turn >= least and perf_counter() > end:
            break
        for number in order:
            start = perf_counter()
            calls[number]()
            found[number].append(perf_counter() - start)
    return found
