"""The table of whole models is that of the programs, and no row of ours is above the others'."""

from __future__ import annotations

import model_cases
import pytest
from places import ROOT

import shardwright as sw

MODES = ("as_shardy", "cheapest")


def table() -> dict[str, list[float | None]]:
    text = (ROOT / "bench" / "models.md").read_text()
    rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {
        name.strip(): [None if "–" in each else float(each.replace(",", "")) for each in figures]
        for name, *figures in rows[1:]
    }


def test_no_row_is_above_the_least_of_the_others() -> None:
    found = table()
    assert found.keys() == {case.name for case in model_cases.cases()}
    for name, (_, cheapest, *others) in found.items():
        known = [each for each in others if each is not None]
        assert cheapest is not None, name
        assert all(cheapest <= each for each in known), name


@pytest.mark.parametrize("mode", MODES)
def test_rows_are_what_programs_receive(mode: str) -> None:
    """Those of experts and of decoding, which are planned in a second."""
    for case in model_cases.cases():
        if case.name.startswith(("experts", "decoding")):
            sides = {"in_shardings": case.inputs, "out_shardings": case.outputs}
            mesh = sw.Mesh(case.mesh)
            program = sw.partition(case.fn, *case.avals, mesh=mesh, mode=mode, **sides)
            said = table()[case.name][MODES.index(mode)]
            assert said == round(program.bytes_received / 2**10, 1), case.name
