"""Small functions of many features, each on random meshes, beside one device."""

from __future__ import annotations

import pytest
from programs import findings
from sweeps import swept

MENDED = (
    *("gradient of feature groups", "turned reshape", "top and where", "a pool's mean"),
    *("second derivatives", "branches of rows", "loops of rows", "rbg, bits"),
    *("at max", "bins", "diagonals", "a mask for each", "a precision, an algorithm"),
)
"""What was wrong before it was in the list."""


WIDE = ("a write from behind", "a slice from a byte", "quotients", "sums of integers")
"""What was wrong where x64 is on."""


def wrong(first: int, last: int, *names: str) -> dict[str, str]:
    found = findings("user_process.py", str(first), str(last), *names)
    return {name: said for name, said in found.items() if said}


@pytest.mark.slow
def test_users_functions_have_one_devices_values() -> None:
    assert wrong(0, 1, *MENDED) == {}
    assert wrong(2, 3, "windows of truths", "a slice from before") == {}
    assert wrong(5, 6, "a matmul of truths", "sorted nothing", "parts without rows") == {}


def test_so_they_have_where_x64_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    assert wrong(0, 4, *WIDE) == {}


@pytest.mark.parametrize("seed", swept(range(24), 24))
def test_the_sweep_of_users_functions(seed: int) -> None:
    """All of them and their gradients, each on a mesh, with shardings and in a mode of its own."""
    assert wrong(seed, seed + 1) == {}
