"""A DTensor without dimensions goes to a mesh of other devices. Torch ignores the shape that is
said of it, and on a rank outside its mesh takes that of the local tensor."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import verified

from shardwright.codegen.emit.emit import emit
from shardwright.ir import Mesh, Reshard

pytest.importorskip("triton")


def test_it_keeps_its_shape_on_every_rank(tmp_path: Path) -> None:
    source = Mesh({"w": 2}).sharding("[]")
    target = Mesh({"y": 3}, device_ids=[4, 5, 6]).sharding("[]")
    emit(Reshard((), "float32", source, target), ("triton_gpu",)).write(tmp_path / "scalar")
    (report,) = verified(tmp_path)
    assert (report.verdict, report.detail) == ("ok", "")
    assert "DTensors" in report.checks
