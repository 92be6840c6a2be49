"""The table of cases: of all that are drawn, those in which every two features meet.

A row is an id; `generate.case_of` says what the case is, `features` has its columns. The first rows
of a backend are chosen so that few of them have every two of its features in some row, the next
ones so that they meet again.
"""

from __future__ import annotations

import itertools
from functools import cache

from .case import Case, TorchUse
from .features import FEATURES, features
from .generate import case_of

POOL = 2000
"""How many ids rows are chosen among."""

COSTLY = ("dtensor", "more than 64 devices")
"""Columns that take many processes or devices: in some row, not with each other column."""


@cache
def drawn(backend: str) -> dict[int, Case]:
    """The cases of a backend among all that are drawn, by id."""
    return {case.id: case for case in map(case_of, range(POOL)) if case.backend == backend}


def pairs(case: Case) -> int:
    """The columns that a case has, and the pairs of them that it has both of, as bits."""
    columns, own = FEATURES[case.backend], features(case)
    has = [number for number, name in enumerate(columns) if name in own]
    usual = [number for number in has if columns[number] not in COSTLY]
    two = [*((number, number) for number in has), *itertools.combinations(usual, 2)]
    return sum(1 << (low * len(columns) + high) for low, high in two)


def cost(case: Case) -> float:
    """The seconds that a case takes, about."""
    if isinstance(case.use, TorchUse) and case.use.door == "dtensor":
        return 2.5 * len(case.device_ids)
    return 1 + len(case.device_ids) / 16


@cache
def rows(backend: str, count: int) -> list[int]:
    """The first ids of the table of a backend."""
    cases = drawn(backend)
    left = {number: pairs(case) for number, case in cases.items()}
    chosen: list[int] = []
    wanted = 0
    while len(chosen) < count:
        if not any(each & wanted for each in left.values()):  # every two have met: once more
            for each in left.values():
                wanted |= each
        best = max(left, key=lambda n: (left[n] & wanted).bit_count() / cost(cases[n]))
        chosen.append(best)
        wanted &= ~left.pop(best)
    return chosen
