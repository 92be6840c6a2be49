"""Sixty small functions, one a feature, and their gradients: modules have one device's values, or
are refused before anything is planned."""

from __future__ import annotations

import feature_cases
import pytest
from programs import findings

SOME = ("host_function", "large_constant", "opaque_nodes", "own_kernel", "triangular_columns")


def test_some_features() -> None:
    found = findings("feature_process.py", "cheapest", *SOME)
    assert (found["count"], found["wrong"]) == (len(SOME), {})


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["as_shardy", "cheapest"])
def test_every_feature(mode: str) -> None:
    found = findings("feature_process.py", mode)
    assert len(feature_cases.FEATURES) >= 60
    assert found["wrong"] == {}
