"""Passes over memory: as HLO has them, and as the model predicts them around collectives."""

from __future__ import annotations

import pytest

from shardwright.codegen.compile.hlo_copies import copied_bytes
from shardwright.codegen.planner.network.passes import Laid, Passes, exchanged, passes_of

HLO = """HloModule copies, entry_computation_layout={(f32[8,128]{1,0})->f32[8,128]{1,0}}

%put (p0: f32[8,128], p1: f32[2,128]) -> f32[8,128] {
  %p0 = f32[8,128]{1,0:T(8,128)} parameter(0)
  %p1 = f32[2,128]{1,0:T(8,128)} parameter(1)
  %zero = s32[]{:T(128)} constant(0)
  ROOT %updated = f32[8,128]{1,0:T(8,128)} dynamic-update-slice(%p0, %p1, %zero, %zero)
}

ENTRY %main (x: f32[8,128]) -> f32[8,128] {
  %x = f32[8,128]{1,0:T(8,128)} parameter(0)
  %turned = f32[8,128]{0,1:T(8,128)} copy(%x)
  %cut = f32[2,128]{1,0:T(8,128)} slice(%x), slice={[0:2], [0:128]}
  %gathered = f32[16,128]{1,0:T(8,128)} all-gather(%x), dimensions={0}
  ROOT %result = f32[8,128]{1,0:T(8,128)} fusion(%x, %cut), kind=kLoop, calls=%put
}
"""


def test_bytes_of_passes() -> None:
    """A copy goes through all, padded to tiles; a slice through its part; an update in place too;
    a collective is no pass."""
    tile = 4 * 8 * 128
    turned = tile + 4 * 128 * 128  # its rows of 8 elements are padded to 128
    assert copied_bytes(HLO) == turned + 2 * tile + 2 * tile


@pytest.mark.parametrize("itemsize", [2, 4])
def test_passes_of_one_collective(itemsize: int) -> None:
    """One that splits and joins the first dimension has none before and after, but where the result
    leaves or is viewed as integers; one that joins the last has two after."""
    rows = exchanged((8, 16, 128), 0, 0, "apart")
    passed = 2 * itemsize * rows.elements
    assert passes_of([rows], rows.elements, itemsize, as_bits=False) == Passes(0, passed)
    assert passes_of([rows], rows.elements, itemsize, as_bits=True) == Passes(2 * passed)
    columns = exchanged((8, 16, 128), 0, 2, "apart")
    assert passes_of([columns], rows.elements, itemsize, as_bits=False) == Passes(2 * passed)


def test_slices_one_after_another_are_one_pass() -> None:
    slices = [Laid("slice", 64), Laid("slice", 16)]
    assert passes_of(slices, 256, 4, as_bits=False) == passes_of(slices[1:], 256, 4, as_bits=False)
    assert passes_of(slices[1:], 256, 4, as_bits=False) == Passes(2 * 4 * 16)
