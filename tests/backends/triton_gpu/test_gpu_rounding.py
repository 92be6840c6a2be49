"""Triton's interpreter rounds to narrow floats as a GPU does, while it verifies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

SCRIPT = Path(__file__).parents[2] / "rounding_casts.py"


@pytest.mark.parametrize(
    ("dtype", "rounded"), [("float8_e4m3fn", 8.0), ("float8_e5m2", 8.0), ("bfloat16", 7.90625)]
)
def test_casts_are_those_of_torch(dtype: str, rounded: float) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, dtype],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.split() == ["0", str(rounded)], done.stdout + done.stderr
