"""Random models (parts, cuts, tables, stages) through the runtimes of torch, over gloo, and JAX."""

from __future__ import annotations

import subprocess
import sys

import pytest
from places import TESTS

WHICH = [
    pytest.param(0, 4, marks=pytest.mark.slow),
    pytest.param(4, 196, marks=pytest.mark.exhaustive),
]


@pytest.mark.parametrize(("first", "count"), WHICH)
@pytest.mark.parametrize("runtime", ["torch", "jax"])
def test_random(runtime: str, first: int, count: int) -> None:
    """Tensors arrive bit by bit, in one bucket or in as many as there can be."""
    pytest.importorskip(runtime)
    command = [sys.executable, str(TESTS / "random_models.py"), runtime, str(first), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000, check=False)
    assert (done.returncode, done.stdout) == (0, f"{count} right\n"), done.stderr[-3000:]
