"""The rows of the table of cases, run: `test_case[pallas_tpu-17]`, as `-m tests.fuzz --id 17`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from fuzz.case import BACKENDS, Case
from fuzz.features import FEATURES, describe, features
from fuzz.generate import case_of
from fuzz.job import Job
from fuzz.pool import seat_of
from fuzz.table import COSTLY, ROWS, drawn, pairs

from shardwright.codegen.operations.verify.pool import missing

QUICK = {"pallas_tpu": 40, "triton_gpu": 82, "jax_xla": 84}
"""Rows of each backend for every run, fewest of those that take longest; the long sweep runs all,
and `make fuzz` has others."""


def numbers() -> list[Any]:
    """The rows of all backends."""
    found = []
    for backend in BACKENDS:
        for place, number in enumerate(ROWS[backend]):
            marks = [pytest.mark.slow] if place >= QUICK[backend] else []
            found.append(pytest.param(number, id=f"{backend}-{number}", marks=marks))
    return found


@pytest.mark.parametrize("number", numbers())
def test_case(number: int) -> None:
    job = Job(case_of(number))
    if missing(job.case.backend):
        pytest.skip(missing(job.case.backend))
    made = seat_of(job.kind).run(job)
    assert not made.bad, f"{made.verdict}: {made.detail}\n{describe(job.case)}"


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_two_features_meet(backend: str) -> None:
    """In the sweep all pairs that any drawn case has, in every run each feature and most pairs."""
    cases = drawn(backend)
    chosen = ROWS[backend]
    assert {name for number in chosen for name in features(cases[number])} >= {*FEATURES[backend]}
    quick = {name for number in chosen[: QUICK[backend]] for name in features(cases[number])}
    assert quick >= {*FEATURES[backend]} - {*COSTLY}
    every = union(cases, cases)
    assert union(chosen, cases) == every
    assert union(chosen[: QUICK[backend]], cases).bit_count() > 0.8 * every.bit_count()


def union(numbers: Iterable[int], cases: dict[int, Case]) -> int:
    """The pairs of columns that any of some cases has."""
    found = 0
    for number in numbers:
        found |= pairs(cases[number])
    return found
