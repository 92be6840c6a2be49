"""Matmuls compiled for TPU topologies, and what their programs move, read from HLO."""

from __future__ import annotations

from pathlib import Path

import pytest

import shardwright as sw
from shardwright.codegen.operations.bundles.compile import compile_bundles
from shardwright.codegen.operations.compile import CompileReport, TpuCode
from shardwright.codegen.spec.hlo.collectives import HloCollective, collectives_of, received_in_all
from shardwright.codegen.spec.hlo.text import HloModule
from shardwright.ir.dtypes import DTYPES

SCATTERED = """\
%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %add.1 = f32[] add(%a, %b)
}

%all-reduce-scatter (input: bf16[64,512]) -> bf16[16,512] {
  %all-reduce.1 = bf16[64,512]{1,0:T(8,128)(2,1)} all-reduce(%input), channel_id=1, replica_groups={{0,1,2,3},{4,5,6,7}}, use_global_device_ids=true, to_apply=%add
  ROOT %cut = bf16[16,512]{1,0} dynamic-slice(%all-reduce.1, %m, %c), dynamic_slice_sizes={16,512}
}

ENTRY %main (p: bf16[64,64]) -> bf16[16,512] {
  ROOT %fusion = bf16[16,512]{1,0} fusion(%p), kind=kCustom, calls=%all-reduce-scatter
}
"""  # noqa: E501

IN_PARTS = """\
%part.0 (a: f32[4,8]) -> f32[16,8] {
  ROOT %g.0 = f32[16,8]{1,0} all-gather(%a), channel_id=1, replica_groups=[2,4]<=[8], dimensions={0}, frontend_attributes={chain_id="3"}
}

%part.1 (a: f32[4,8]) -> f32[16,8] {
  ROOT %g.1 = f32[16,8]{1,0} all-gather(%a), channel_id=1, replica_groups=[2,4]<=[8], dimensions={0}, frontend_attributes={chain_id="3"}
}

%turn (s: (s32[], f32[4])) -> (s32[], f32[4]) {
  %q = f32[4]{0} collective-permute(%r), channel_id=1, source_target_pairs={{0,1},{1,0}}
  ROOT %t = (s32[], f32[4]) tuple(%n, %q)
}

ENTRY %main (p: f32[4,8]) -> f32[16,8] {
  %w = (s32[], f32[4]) while(%s), condition=%c, body=%turn, backend_config={"known_trip_count":{"n":"3"}}
  %x = f32[16,8]{1,0} fusion(%p), kind=kCustom, calls=%part.0
  %z = (f32[4,8]{1,0}, f32[8,8]{1,0}) all-gather-start(%p), channel_id=1, replica_groups=[4,2]<=[8], dimensions={0}
  %d = f32[8,8]{1,0} all-gather-done(%z)
  ROOT %y = f32[16,8]{1,0} fusion(%x), kind=kCustom, calls=%part.1
}
"""  # noqa: E501


def figures(found: HloCollective) -> tuple[str, int, int]:
    """What a collective is, the bytes that it gives a device, and how often it runs."""
    return found.op, sum(each.nbytes for each in found.arrays), found.often.times


def test_a_reduce_scatter_of_the_tpu_compiler() -> None:
    (found,) = collectives_of(HloModule(SCATTERED), 8)
    assert figures(found) == ("reduce-scatter", 2 * 16 * 512, 1)
    assert received_in_all(SCATTERED, 8) == [3 * 2 * 16 * 512] * 8


def test_parts_of_one_collective_and_turns_of_a_loop() -> None:
    """Collectives of one channel that are none of one chain count each."""
    found = list(map(figures, collectives_of(HloModule(IN_PARTS), 8)))
    gathers = ("all-gather", 4 * 16 * 8, 1), ("all-gather", 4 * 8 * 8, 1)
    assert sorted(found) == sorted([*gathers, ("collective-permute", 16, 3)])
    gathered = 4 * 16 * 8 * 3 // 4 + 4 * 8 * 8 // 2
    assert received_in_all(IN_PARTS, 8) == [gathered + 3 * 16] * 2 + [gathered] * 6


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CompileReport]:
    """Compiled for v5e, and saved: partial sums, an uneven matmul with a loop, a result left
    unreduced, integers of 64 bits, a module that is broken. The compiler makes all-reduces of small
    reduce-scatters; of those along a last dimension, as in `narrow`, unless they are along one of
    their own."""
    root = tmp_path_factory.mktemp("matmuls") / "generated"
    summed = sw.Matmul(
        "bf16", ((2048, 512), "P('x', 'y')"), ((512, 2048), "P('y')"), "P('x', 'y')", mesh="x=2,y=2"
    )
    uneven = sw.Matmul(
        "f32", ((10, 16), "P('x')"), ((16, 24), "P(None, 'x')"), "P('x')", mesh="x=4"
    )
    kept = sw.Matmul(
        "bf16",
        ((16, 32), "P(None, 'x')"),
        ((32, 8), "P('x')"),
        '[{}, {}], unreduced={"x"}',
        mesh="x=4",
    )
    narrow = sw.Matmul(
        "bf16", ((64, 512), "P(None, 'x')"), ((512, 128), "P('x')"), "P(None, 'x')", mesh="x=2,y=2"
    )
    sw.emit(summed).write(root / "summed")
    sw.emit(narrow).write(root / "narrow")
    sw.emit(uneven, loop="one").write(root / "uneven")
    sw.emit(kept).write(root / "kept")
    long = sw.Matmul("int64", ((8, 16), "P('x')"), ((16, 8), "P()"), "P('x')", mesh="x=4")
    sw.emit(long).write(root / "long")
    sw.emit(summed).write(root / "broken")
    module = root / "broken" / "jax_xla.py"
    module.write_text(module.read_text().replace("def _multiply(a, b):", "def _multiply(a):"))
    found = compile_bundles(root, ["v5e:2x2"], save=root.parent / "saved")
    saved = root.parent / "saved" / "summed"
    assert sorted(path.name for path in saved.iterdir()) == ["v5e_2x2.jax_export", "v5e_2x2.json"]
    return {report.name: report for report in found}


def test_matmuls_are_compiled_for_tpu(reports: dict[str, CompileReport]) -> None:
    assert {name: report.verdict for name, report in reports.items()} == {
        "summed": "ok",
        "narrow": "ok",
        "uneven": "ok",
        "kept": "ok",
        "long": "failed",
        "broken": "failed",
    }
    code = reports["summed"].code
    assert isinstance(code, TpuCode)
    assert code.wire_bytes == reports["summed"].bound_bytes == 1024 * 1024
    narrow = reports["narrow"]
    assert isinstance(narrow.code, TpuCode)
    assert narrow.code.wire_bytes == narrow.bound_bytes == 2 * 64 * 64
    assert "positional argument" in reports["broken"].detail


def test_jits_own_matmul_is_compiled_beside(reports: dict[str, CompileReport]) -> None:
    theirs = reports["summed"].xla
    assert theirs is not None
    assert isinstance(theirs.code, TpuCode)
    assert theirs.code.wire_bytes == 2 * 1024 * 1024
    assert reports["uneven"].xla is not None
    assert reports["kept"].xla is None  # jit has no unreduced result


def test_what_a_tpu_cannot_multiply(reports: dict[str, CompileReport]) -> None:
    """The rule is said before its compiler is asked; jit's own matmul asks it."""
    assert reports["long"].detail == (
        "dtype: TPUs cannot multiply 64-bit integers; got: int64, for v5e:2x2; expected: int32"
    )
    theirs = reports["long"].xla
    assert theirs is not None
    assert theirs.code is None
    assert "X{64|128} element types" in theirs.error


@pytest.mark.slow
def test_what_a_tpu_multiplies(tmp_path: Path) -> None:
    """All that is not refused, with results of the operands' dtype and of that of sums; but of
    float64 its compiler has no reduce-scatter."""
    root = tmp_path / "generated"
    names = []
    for dtype in (each for each in DTYPES if each not in ("bool", "int64")):
        sides = ((8, 16), "P(None, 'x')"), ((16, 8), "P('x')"), "P('x')"
        made = sw.Matmul(dtype, *sides, mesh="x=4")
        for out in dict.fromkeys((dtype, made.sum_dtype)):
            names.append(f"{dtype}_{out}")
            sw.emit(sw.Matmul(dtype, *sides, out, mesh="x=4")).write(root / names[-1])
    reports = compile_bundles(root, ["v5e:2x2"], xla=False)
    failed = {each.name: each.detail for each in reports if each.verdict != "ok"}
    assert len(reports) == len(names)
    assert list(failed) == ["float64_float64"]
    assert "Supported lowering only of Sum reduce-scatter" in failed["float64_float64"]
