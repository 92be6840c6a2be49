"""The table of cases of docs/comparison.md, and the case that DTensor gets wrong."""

from __future__ import annotations

import pytest
from places import ROOT

from bench.comparison import CASES, FILE, torch_answers


def test_the_page_has_the_table() -> None:
    lines = [line for line in FILE.read_text().splitlines() if line.startswith("|")]
    assert len(lines) == len(CASES) + 2
    assert "\n".join(lines) in (ROOT / "docs/comparison.md").read_text()


@pytest.mark.slow
def test_uneven_rows() -> None:
    """torch 2.13 loses a row, the module does not; with a torch that is right the table is old."""
    pytest.importorskip("torch")
    (case,) = (case for case in CASES if case.name == "uneven rows")
    (answer,) = torch_answers([case])
    assert answer == {"torch": "wrong values: rows begin [0, 3, 6, 0, 9]", "module": "right"}
