"""What Triton modules say in a process without a process group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from every_feature import EVERY

import shardwright as sw
from shardwright.codegen.checks.load import load

torch: Any = pytest.importorskip("torch")
pytest.importorskip("triton")

MESH = sw.Mesh({"x": 2})
ROWS, COLUMNS = MESH.sharding('[{"x"}, {}]'), MESH.sharding('[{}, {"x"}]')
SAID = "no process group: call torch.distributed.init_process_group first"


def test_a_reshard(tmp_path: Path) -> None:
    sw.emit(sw.Reshard((4, 4), "float32", ROWS, COLUMNS), ("triton_gpu",), features=EVERY).write(
        tmp_path / "w"
    )
    module, shard = load(tmp_path / "w/triton_gpu.py"), torch.ones(2, 4)
    for call in (
        lambda: module.reshard(shard),
        lambda: module.reshard(shard, async_op=True),
        lambda: module.symmetric_source(None, shard),
        lambda: module.symmetric_result(None, shard),
    ):
        with pytest.raises(ValueError, match=SAID):
            call()
    both = module.reshard_local([shard, shard])
    assert [tuple(each.shape) for each in both] == [(4, 2)] * 2


def test_a_matmul(tmp_path: Path) -> None:
    whole = (4, 4), MESH.sharding("[{}, {}]")
    matmul = sw.Matmul("float32", ((4, 4), ROWS), whole, ROWS)
    sw.emit(matmul, ("triton_gpu",), features=("gradient",)).write(tmp_path / "m")
    module = load(tmp_path / "m/triton_gpu.py")
    with pytest.raises(ValueError, match=SAID):
        module.matmul(torch.ones(2, 4), torch.ones(4, 4))
