"""The golden option, what hypothesis holds tests to, and workers that stay."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is, not whether the code is right. What every
# run draws is the same, so that a change is judged by itself; `make exhaustive` draws others.
_BUSY = [HealthCheck.too_slow]
settings.register_profile(
    "shardwright", deadline=None, derandomize=True, database=None, suppress_health_check=_BUSY
)
settings.register_profile("random", deadline=None, derandomize=False, suppress_health_check=_BUSY)
settings.load_profile("shardwright")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden")


@pytest.fixture(scope="session", autouse=True)
def kept_workers() -> Iterator[None]:
    """Let workers of `verify` wait for the next test."""
    from kept_workers import KeptWorker

    from shardwright.codegen.operations.verify import pool

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "Worker", KeptWorker)
        yield


def pytest_pycollect_makeitem(
    collector: pytest.Module, obj: object
) -> list[pytest.Item | pytest.Collector] | None:
    """Do not make the items of a function that `-m` leaves out: thousands, in each process."""
    asked = collector.config.option.markexpr
    named = any("::" in each for each in collector.config.args)  # is told that it is left out
    marks = {mark.name for mark in getattr(obj, "pytestmark", ())}
    every = named or " or " in asked  # as "slow or not slow" does
    left_out = not every and any(f"not {mark}" in asked for mark in marks)
    return [] if left_out else None
