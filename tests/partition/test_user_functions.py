"""Small functions of many features, on random meshes, beside one device."""

from __future__ import annotations

import pytest
from programs import findings
from sweeps import swept


def wrong(first: int, last: int) -> dict[str, str]:
    found = findings("user_process.py", str(first), str(last))
    return {name: said for name, said in found.items() if said}


def test_users_functions_have_one_devices_values() -> None:
    assert wrong(0, 3) == {}


@pytest.mark.parametrize("seed", swept(range(3, 27), 12))
def test_the_sweep_of_users_functions(seed: int) -> None:
    """Each function on 24 meshes."""
    assert wrong(seed, seed + 1) == {}
