"""Sixty small functions, one a feature, and their gradients: modules have one device's values, or
are refused before anything is planned."""

from __future__ import annotations

import feature_cases
import pytest
from programs import findings

SOME = ("host_function", "large_constant", "opaque_nodes", "triangular_columns")
SOME += ("sums_of_several_dtypes", "gradient of sums_of_several_dtypes")
SOME += ("own_kernel", "own_kernel_on_shards", "own_kernel_with_a_rule")


def test_some_features() -> None:
    found = findings("feature_process.py", "cheapest", *SOME)
    assert (found["count"], found["wrong"]) == (len(SOME), {})


def test_a_kernel_of_other_shards_is_found() -> None:
    (said,) = findings("feature_process.py", "as_shardy", "of_other_shards")["wrong"].values()
    assert said.startswith("result 0: device 0: off by ")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["as_shardy", "cheapest"])
def test_every_feature(mode: str) -> None:
    found = findings("feature_process.py", mode)
    assert len(feature_cases.FEATURES) >= 60
    assert found["wrong"] == {}
