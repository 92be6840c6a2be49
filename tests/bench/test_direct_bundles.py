"""Bundles of kernels that go through their peers, read from what the compiler dumps."""

from __future__ import annotations

import pytest

from bench.direct_bundles import BEFORE, DELAY, RESULT, TILES, Bundles, Loop, counted

TEXT = """\
LB: loop body
     0   :  { %25 = vsyncpa [#allocation17], 0 }
  0x22 LB: > { %s9 = sadd.s32 1, %s8 }
  0x23   :  {}
  0x24 PF: > { %s1 = smov %s2 }
  0x25   : > { %p2 = scmp.ge.s32.totalorder %s1, 10 /* loop exit test */ }
  0x26   :  { %531 = sbr.rel (!%p2) target = $region305 }
  0x27   :  {}
  0x28   :  {}
  0x29   :  {}
  0x2a   :  {}
  0x2b   :  { %1 = smov %v1 }
  0x2c LB: > { %p5 = scmp.ge.s32.totalorder %s1, %s2 /* loop exit test */ }
  0x2d   :  { %5 = sbr.rel (!%p5) target = $region306 }
  0x2e   :  {}
  0x2f   :  {}
  0x30   :  {}
  0x31   :  {}
"""


def test_loops_end_with_the_branch_after_their_test() -> None:
    """What stands between label and branch is run at every turn, and what its delay has room for;
    a loop of which no number of turns is told counts once."""
    found = counted(TEXT)
    assert found == Bundles((Loop(5 + DELAY, 10), Loop(2 + DELAY, 1)), 2)
    assert found.in_all == 90 + 6 + 2


def rows() -> dict[tuple[str, int], tuple[int, int]]:
    """Bundles now and before, by tiles and devices: of the table, which a run of the script
    writes."""
    cells = [line.strip("| ").split(" | ") for line in RESULT.read_text().splitlines()]
    table = (row for row in cells if row[0] in TILES)
    return {
        (tiles, int(devices)): (int(now.replace(",", "")), int(before.replace(",", "")))
        for tiles, _, devices, _, now, before, _ in table
    }


def test_the_table_is_of_all_kinds_of_tiles() -> None:
    assert {key: before for key, (_, before) in rows().items()} == BEFORE
    assert {tiles for tiles, _ in BEFORE} == set(TILES)


@pytest.mark.parametrize(("tiles", "devices"), [key for key in BEFORE if key[0] != "unaligned"])
def test_loops_over_peers_are_half_of_what_they_were(tiles: str, devices: int) -> None:
    now, before = rows()[tiles, devices]
    assert now < 0.5 * before


def test_unaligned_tiles_take_less_too() -> None:
    """Most of their bundles shift chunks."""
    now, before = rows()["unaligned", 256]
    assert now < 0.9 * before
