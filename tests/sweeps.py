"""Which cases of a family a test takes, which the long sweep, and which the exhaustive one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow(*ends: int) -> list[Any]:
    """Numbers for the long sweep: those of `range`."""
    return [pytest.param(number, marks=pytest.mark.slow) for number in range(*ends)]


def sampled(family: Iterable[Any], *kept: Any) -> list[Any]:
    """All of a family: those that are kept for every run, and the others for the long sweep."""
    every = list(family)
    assert all(each in every for each in kept)
    return [each if each in kept else pytest.param(each, marks=pytest.mark.slow) for each in every]


def kept(family: Iterable[Any], *chosen: Any) -> list[Any]:
    """Those of a family that the long sweep takes, and the others for the exhaustive one."""
    every = list(family)
    assert all(each in every for each in chosen)
    marks = pytest.mark.exhaustive, pytest.mark.slow
    return [pytest.param(each, marks=marks[each in chosen]) for each in every]


def swept(numbers: Iterable[int], every: int) -> list[Any]:
    """Numbers of which the long sweep takes the multiples of one, and the exhaustive one the
    others."""
    marks = pytest.mark.slow, pytest.mark.exhaustive
    return [pytest.param(number, marks=marks[number % every > 0]) for number in numbers]
