"""Triton's interpreter rounds to narrow floats as a GPU does, while it verifies."""

from __future__ import annotations

from pathlib import Path

import pytest
from gloo_group import printed

pytest.importorskip("torch")
pytest.importorskip("triton")

SCRIPT = """
import sys
import rounding_casts
for name in sys.argv[1:]:
    rounding_casts.main(name)
"""


def test_casts_are_those_of_torch(tmp_path: Path) -> None:
    """How many are not, and what 7.9 becomes."""
    names = ["float8_e4m3fn", "float8_e5m2", "bfloat16"]
    assert printed(SCRIPT, names, tmp_path).splitlines() == ["0 8.0", "0 8.0", "0 7.90625"]
