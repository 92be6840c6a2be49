"""What an audit calls redundant: no more than the program can do without."""

from __future__ import annotations

from pathlib import Path

from commands import ok

from shardwright.codegen.audit.audit import audit
from shardwright.ir import Mesh

HEAD = """\
HloModule jit_step, num_partitions=4

ENTRY %main (x: f32[4,8]) -> f32[4,2] {
  %x = f32[4,8]{1,0} parameter(0)
  %g = f32[16,8]{1,0} all-gather(%x), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}
  %id = u32[] partition-id()
  %two = u32[] constant(2)
  %four = u32[] constant(4)
  %columns = u32[] multiply(%id, %two)
  %zero = u32[] constant(0)
"""
COLUMNS = "  %c = f32[16,2]{1,0} dynamic-slice(%g, %zero, %columns), dynamic_slice_sizes={16,2}\n"
ROWS = "  %r = f32[4,8]{1,0} dynamic-slice(%g, %next, %zero), dynamic_slice_sizes={4,8}\n"
TURNED = """\
  %half = u32[] divide(%id, %two)
  %odd = u32[] remainder(%id, %two)
  %twice = u32[] multiply(%odd, %two)
  %number = u32[] add(%twice, %half)
  %next = u32[] multiply(%number, %four)
"""
MESH, SQUARE = Mesh({"x": 4}), Mesh({"x": 2, "y": 2})


def test_devices_that_keep_two_parts_need_both() -> None:
    """Columns take 3 parts of 4 x 2 from others, the rows of device 2 on device 1 are 4 x 8."""
    end = "  ROOT %t = (f32[16,2]{1,0}, f32[4,8]{1,0}) tuple(%c, %r)\n}\n"
    columns, rows, gathered = 3 * 4 * 2 * 4, 4 * 8 * 4, 3 * 4 * 8 * 4
    columns_alone = audit(HEAD + COLUMNS + "  ROOT %t = f32[16,2]{1,0} negate(%c)\n}\n", SQUARE)
    assert (columns_alone.received, columns_alone.redundant) == (gathered, gathered - columns)
    both = audit(HEAD + TURNED + COLUMNS + ROWS + end, SQUARE)
    assert (both.received, both.redundant) == (gathered, gathered - columns - rows)
    (finding,) = both.findings
    assert (finding.suffices, finding.reshard) == (columns + rows, None)


def test_rows_at_constant_indices_are_not_said_to_need_the_whole(tmp_path: Path) -> None:
    text = HEAD + "  ROOT %s = f32[1,8]{1,0} slice(%g), slice={[3:4], [0:8]}\n}\n"
    report = audit(text, MESH)
    assert (report.received, report.redundant, report.findings) == (384, 0, ())
    (tmp_path / "step.hlo").write_text(text)
    said = ok("audit", tmp_path / "step.hlo", "--mesh", "x=4")
    assert said.startswith(
        "jit_step: 4 devices, 1 collective; the busiest device receives 384 bytes\n"
    )
    assert "least" not in said


def test_what_other_devices_save_is_not_the_busiest_devices() -> None:
    """Device 0 receives more than all that the gather brings, from a permute that is needed."""
    permute = (
        "  %p = f32[4,8]{1,0} collective-permute(%x), channel_id=2, source_target_pairs={{1,0}}\n"
    )
    end = "  ROOT %t = (f32[16,2]{1,0}, f32[4,8]{1,0}) tuple(%c, %p)\n}\n"
    report = audit(HEAD + permute + COLUMNS + end, MESH)
    assert (report.received, report.redundant) == (384 + 128, 384 - 96)
