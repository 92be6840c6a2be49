"""How busy MXUs are, read from bundles; one kernel's figures from the TPU compiler."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import shardwright as sw
from bench import overlap_tpu
from bench.overlap_tpu import Busy, compiled, counted, ring_of, written
from shardwright.codegen.operations.compile import targets

BUNDLES = """\
= control target key start
LB: loop body
= control target key end
     0   :  { %25 = vsyncpa [#allocation17], 0 }
  0x22 LB: > { %s9 = sadd.s32 1, %s8 }
  0x23 PF: > { %s1 = smov %s2 }
  0x24 LB: >> { %1 = vmatmul.bf16.gmra.mxu0 %v1  ;;  %2 = vmatmul.bf16.gmra.mxu1 %v2 }
  0x25   : >> { %3 = vmatpush.bf16.msra.mxu0 %v3 }
  0x26   : > { %901 = vst [vmem:[#allocation4]] sm:$0xff] }
"""


def test_loops_are_counted() -> None:
    """Two issues in one bundle are two; what is around the loop counts once a block."""
    _, ring = ring_of("all-gather", "bfloat16", "v5e:2x4")
    small = replace(ring, blocks=replace(ring.blocks, sizes=(1, 32, 128, 128)))
    assert counted(BUNDLES, small) == Busy(2, 8, 1, 3)
    said = "got 2 vmatmul in a loop over blocks of 512 x 1024 x 1024, expected 2048"
    with pytest.raises(ValueError, match=f"^{said}$"):
        counted(BUNDLES, ring)


def test_products_of_an_issue_are_those_of_the_dtype() -> None:
    """A register has 8 rows of float32, 16 of bfloat16, 32 of int8; int8 takes half the cycles."""
    found = []
    for dtype, rows in (("float32", 16), ("bfloat16", 32), ("int8", 64)):
        _, ring = ring_of("all-gather", dtype, "v5e:2x4")
        small = replace(ring, blocks=replace(ring.blocks, sizes=(1, rows, 128, 128)))
        found.append(counted(BUNDLES, small).cycles)
    assert found == [4, 8, 8]


def test_a_share_is_of_what_takes_longer() -> None:
    waiting, busy = Busy(2, 8, 4, 8), Busy(16, 8, 1, 4)
    assert (waiting.in_loop, waiting.at_least) == (1.0, 32 / 40)
    assert (busy.in_loop, busy.at_least) == (0.5, 8 / 20)


@pytest.mark.slow
def test_a_kernel_through_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small one; its bundles make as many products as its blocks have."""
    try:
        targets.require(targets.parse_targets(["v5e:2x4"]), saving=False)
    except sw.InputError as error:
        pytest.skip(" ".join(str(error).split()))
    monkeypatch.setattr(overlap_tpu, "SIZE", 2048)
    plan, ring = ring_of("all-gather", "bfloat16", "v5e:2x4")
    path = written(plan, tmp_path / "generated")
    ours, theirs = compiled(path, "v5e:2x4", 1)
    assert "collective-permute" not in ours.form
    assert "all-gather" in theirs.form or "collective-permute" in theirs.form
    assert min(ours.code, theirs.code, ours.memory) > 0
    compiled(path, "v5e:2x4", 1, tmp_path / "dump")
    assert 0.5 < overlap_tpu.busy_of(tmp_path / "dump", ring).in_loop <= 1
