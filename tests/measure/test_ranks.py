"""Ranks of Triton modules that are timed, in Triton's interpreter on the CPU: what is right about
them, and a wrong result."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch.multiprocessing import ProcessRaisedException

import shardwright as sw
from shardwright.codegen.backends.triton_gpu.verify.timed import TURNS, by_ranks, timed
from shardwright.codegen.checks.case import Case
from shardwright.codegen.checks.load import load
from shardwright.codegen.checks.matmul_case import MatmulCase
from shardwright.codegen.checks.timed import CannotTimeError

pytestmark = pytest.mark.slow  # ranks take seconds to start

MESH = {"x": 2}


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")


def moved(folder: Path) -> Case:
    """A reshard to a mesh that lacks a device of the source."""
    reshard = sw.Reshard((6, 4), "bf16", '[{"x"}, {}]', "[{}, {}]", mesh=MESH, target_mesh={"y": 1})
    sw.emit(reshard, backends=("triton_gpu",)).write(folder / "moved")
    return Case.of(reshard, "moved", "triton_gpu", folder / "moved" / "triton_gpu.py")


def test_a_reshard(tmp_path: Path) -> None:
    case = moved(tmp_path)
    seconds = by_ranks(case, "cpu")
    assert len(seconds) == TURNS
    assert all(0 < each < 60 for each in seconds)
    with pytest.raises(CannotTimeError, match=r"^it needs 2 GPUs, but torch has 0$"):
        timed(load(case.module), case)


def test_a_matmul(tmp_path: Path) -> None:
    sides = ((16, 16), '[{"x"}, {}]'), ((16, 16), '[{"x"}, {}]')
    matmul = sw.Matmul("bf16", *sides, '[{"x"}, {}]', mesh=MESH)
    sw.emit(matmul, backends=("triton_gpu",), topology="h100:2").write(tmp_path / "product")
    case = MatmulCase.of(matmul, "product", "triton_gpu", tmp_path / "product" / "triton_gpu.py")
    assert len(by_ranks(case, "cpu")) == TURNS


def test_a_wrong_result(tmp_path: Path) -> None:
    case = moved(tmp_path)
    support = tmp_path / "_support" / "torch_wire.py"
    text, kept = support.read_text(), "self._keeping.copy(map(_address, shards), "
    assert kept in text
    support.write_text(text.replace(kept, "pass  # (", 1))
    with pytest.raises(ProcessRaisedException, match="MismatchError: device 0: wrong result"):
        by_ranks(case, "cpu")
