"""The audit of HLO texts: groups, what is wrong with them, loops, and what is said of a program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import files, mistake, ok, run
from strategies import exactly, message

from shardwright.codegen.audit.audit import audit
from shardwright.codegen.audit.reshards import axes_of, faults_of, permute_faults_of
from shardwright.ir import Mesh

PROGRAM = """\
HloModule jit_step, num_partitions=8

ENTRY %main (x: f32[4,16]) -> f32[16,16] {
  %x = f32[4,16]{1,0} parameter(0), sharding={devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}
  ROOT %g = f32[16,16]{1,0} all-gather(%x), channel_id=1, GROUPS, dimensions={0}, \
metadata={op_name="jit(step)/mul" source_file="train.py" source_line=12}
}
"""
GOOD = "replica_groups={{0,1,2,3},{4,5,6,7}}"


def program(groups: str = GOOD) -> str:
    return PROGRAM.replace("GROUPS", groups)


@pytest.mark.parametrize(
    ("groups", "over"),
    [
        (GOOD, "t"),
        ("replica_groups=[2,4]<=[8]", "t"),
        ("replica_groups=[4,2]<=[2,4]T(1,0)", "d"),
        ("replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_1'}", "t"),
        ("replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_0','axis_1'}", "d, t"),
        ("replica_groups={{0,2},{1,3},{4,6},{5,7}}", "t:(1)2"),
        ("replica_groups={{0,1},{2,3},{4,5},{6,7}}", "t:(2)2"),
        ("replica_groups={}", "d, t"),
        ("replica_groups={{0,5},{1,4},{2,7},{3,6}}", "4 x 2 devices, no axes"),
        ("replica_groups={{0,1,2,4},{3,5,6,7}}", "2 x 4 devices, no axes"),
    ],
)
def test_groups_as_axes(groups: str, over: str) -> None:
    report = audit(program(groups), Mesh({"d": 2, "t": 4}))
    assert [row.over for row in report.rows] == [over]
    assert report.faults == ()


@pytest.mark.parametrize(
    ("groups", "fault"),
    [
        ("replica_groups={{0,1,2,3},{4,5,6}}", "device 7 is in no group"),
        ("replica_groups={{0,1,2,3},{3,4,5,6,7}}", "device 3 is in two groups"),
        ("replica_groups={{0,1,2,3},{4,5,6,8}}", "device 8 is not one of the program's 8"),
        ("replica_groups={{0,1,2},{3,4,5,6,7}}", "groups of 3 and of 5 devices"),
    ],
)
def test_planted_wrong_groups_are_found(groups: str, fault: str, tmp_path: Path) -> None:
    (row,) = audit(program(groups)).faults
    assert row.fault == fault
    (tmp_path / "step.hlo").write_text(program(groups))
    result = run("audit", tmp_path / "step.hlo")
    assert result.code == 1
    assert f"wrong groups: train.py:12 all-gather: {fault}\n" in result.out


def test_planted_wrong_pairs_are_found() -> None:
    assert permute_faults_of([[0, 1], [1, 2]], 4) == ""
    assert permute_faults_of([[0, 1], [2, 1]], 4) == "device 1 receives twice"
    assert permute_faults_of([[0, 1], [0, 2]], 4) == "device 0 sends twice"
    assert permute_faults_of([[0, 4]], 4) == "device 4 is not one of the program's 4"
    assert faults_of([[0, 1], [2, 3]], 4) == ""


def test_meshes_with_another_order_count_places() -> None:
    """A program's devices are those of its mesh one after another, whatever their ids."""
    reversed_ids = Mesh({"d": 2, "t": 4}, range(7, -1, -1))
    assert axes_of([[0, 1, 2, 3], [4, 5, 6, 7]], reversed_ids) == "t"


def test_a_loop_whose_turns_are_not_known_counts_once_and_says_so(tmp_path: Path) -> None:
    text = """\
HloModule jit_step, num_partitions=2

%body (p: (f32[8])) -> (f32[8]) {
  %p = (f32[8]{0}) parameter(0)
  %v = f32[8]{0} get-tuple-element(%p), index=0
  %sum = f32[8]{0} all-reduce(%v), channel_id=1, replica_groups={{0,1}}, to_apply=%add
  ROOT %t = (f32[8]{0}) tuple(%sum)
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %start = (f32[8]{0}) tuple(%x)
  ROOT %while = (f32[8]{0}) while(%start), condition=%condition, body=%body
}
"""
    (row,) = audit(text).rows
    assert (row.times, row.exact, row.received) == (1, False, 32)
    (tmp_path / "loop.hlo").write_text(text)
    said = ok("audit", tmp_path / "loop.hlo")
    assert "1+" in said
    assert "note: the text does not state the trip count of a loop" in said


SLICED = """\
HloModule jit_step, num_partitions=4

ENTRY %main (x: bf16[4,8]) -> bf16[16,2] {
  %x = bf16[4,8]{1,0} parameter(0)
  %wide = f32[4,8]{1,0} convert(%x)
  %g = f32[16,8]{1,0} all-gather(%wide), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}
  %turned = f32[8,16]{1,0} transpose(%g), dimensions={1,0}
  %id = u32[] partition-id()
  %two = u32[] constant(2)
  %at = u32[] multiply(%id, %two)
  %zero = u32[] constant(0)
  %part = f32[2,16]{1,0} dynamic-slice(%turned, %at, %zero), dynamic_slice_sizes={2,16}
  ROOT %USER
}
"""


def test_a_gather_that_is_used_whole_too_is_not_in_vain() -> None:
    kept = SLICED.replace("%USER", "%y = f32[2,16]{1,0} negate(%part)")
    (finding,) = audit(kept, Mesh({"x": 4})).findings
    assert finding.reshard is not None
    # Of the transposed tensor, in the dtype that travels.
    assert finding.reshard.shape == (8, 16)
    assert (str(finding.reshard.source), str(finding.reshard.target)) == (
        '[{}, {"x"}]',
        '[{"x"}, {}]',
    )
    assert (finding.received, finding.suffices) == (3 * 4 * 8 * 4, 3 * 2 * 4 * 4)
    assert audit(SLICED.replace("%USER", "%y = f32[16,8]{1,0} negate(%g)")).findings == ()


def test_json(tmp_path: Path) -> None:
    (tmp_path / "step.hlo").write_text(SLICED.replace("%USER", "%y = f32[2,16]{1,0} negate(%part)"))
    said = json.loads(ok("audit", tmp_path / "step.hlo", "--json", "--mesh", "x=4"))
    assert {key: said[key] for key in ("module", "devices", "received", "redundant")} == {
        "module": "jit_step",
        "devices": 4,
        "received": 384,
        "redundant": 288,
    }
    (finding,) = said["findings"]
    assert finding["saved"] == 288
    assert "[[reshard]]" in finding["toml"]


def test_tables_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "step.hlo").write_text(program())
    for columns, more in (("80", False), ("120", True)):
        monkeypatch.setenv("COLUMNS", columns)
        said = ok("audit", tmp_path / "step.hlo", "--mesh", "d=2,t=4")
        assert max(len(line) for line in said.splitlines() if line[0] in "┏┡│└") <= int(columns)
        assert ("f32[16,16]" in said) is more


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "module @jit_f {\n}\n",
            """
            the text is not HLO; use compiled.as_text() instead of lowered.as_text()
            got: module @jit_f {
            """,
        ),
        (
            "",
            """
            the text is not HLO
            got: an empty file
            """,
        ),
    ],
)
def test_texts_that_are_no_hlo(text: str, expected: str) -> None:
    assert message(lambda: audit(text)).startswith(exactly(expected))


def test_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "step.hlo"
    path.write_text(program())
    assert mistake("audit", path, "--mesh", "x=4") == (
        "--mesh: the mesh must have as many devices as the program\n"
        "got: 4 devices\nexpected: 8, for example x=8"
    )
    path.write_text(program("replica_groups=@other"))
    assert mistake("audit", path).startswith(
        "FILE: the groups of a collective could not be parsed\ngot: unknown replica_groups: "
    )
    early = '  %s = f32[8] custom-call(%x), custom_call_target="Sharding", sharding={replicated}\n'
    path.write_text("HloModule jit_step\n\nENTRY %main (x: f32[8]) -> f32[8] {\n" + early + "}\n")
    assert mistake("audit", path).startswith("FILE: the program is not partitioned yet")
    path.write_text(program())
    before = files(tmp_path)
    assert mistake("audit", path, "-o", tmp_path / "no" / "wanted.toml").startswith(
        "--output: cannot be written"
    )
    assert files(tmp_path) == before
