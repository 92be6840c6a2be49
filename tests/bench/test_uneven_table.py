"""The table of programs whose extents do not divide: every program, and `cheapest` beside XLA."""

from __future__ import annotations

import uneven_rows
from places import ROOT

import shardwright as sw

SOME = {"normal rows", "a dilated convolution, gradient", "differences, gradient", "a token before"}
ABOVE_AS_SHARDY = {"a token before, gradient", "a token after, gradient"}
"""Rows in which `cheapest` receives more than `as_shardy` and computes less: its cost is lower."""


def table() -> dict[str, list[int]]:
    text = (ROOT / "bench" / "uneven_bytes.md").read_text()
    rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {
        name.strip(): [int(each.strip(" |").replace(",", "")) for each in figures]
        for name, *figures in rows[1:]
    }


def test_every_program_is_in_it() -> None:
    assert list(table()) == [each.name for each in uneven_rows.patterns()]


def test_cheapest_receives_no_more_than_xla() -> None:
    found = table()
    assert {name for name, row in found.items() if row[1] > row[2]} == set()
    assert {name for name, row in found.items() if row[1] > row[0]} == ABOVE_AS_SHARDY
    assert {name for name, row in found.items() if row[1] > row[3]} == set()


def test_some_rows_are_what_the_mode_reports() -> None:
    found = table()
    for each in uneven_rows.patterns():
        if each.name in SOME:
            sides = {"in_shardings": each.inputs, "out_shardings": each.output}
            program = sw.partition(each.fn, *each.avals, mesh=each.mesh, mode="cheapest", **sides)
            assert program.bytes_received == found[each.name][1], each.name
