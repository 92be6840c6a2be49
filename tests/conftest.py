"""The golden option, and what hypothesis holds tests to."""

from __future__ import annotations

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
