"""Bundles of kernels that go through their peers, read from what the compiler dumps."""

from __future__ import annotations

from bench.direct_bundles import BEFORE, RESULT, Bundles, counted

TEXT = """\
LB: loop body
     0   :  { %25 = vsyncpa [#allocation17], 0 }
  0x22 LB: > { %s9 = sadd.s32 1, %s8 }
  0x23   : > { %s1 = smov %s2 }
  0x24   :  { %1 = smov %v1 }
  0x25 PF: > { %3 = smov %v3 }
  0x26   :  { %4 = smov %v3 }
  0x27 LB: > { %5 = smov %v3 }
"""


def test_loops_are_told_from_branches() -> None:
    assert counted(TEXT) == Bundles(2, 3, 3)
    assert counted(TEXT).in_all(10) == 33


def test_loops_over_peers_are_half_of_what_they_were() -> None:
    """By the table, which a run of the script writes."""
    rows = [line.split("|")[1:-1] for line in RESULT.read_text().splitlines() if "," in line]
    (*_, now, before) = (int(cell.replace(",", "")) for cell in rows[-1])
    assert before == BEFORE.in_all(256)
    assert now < 0.6 * before
