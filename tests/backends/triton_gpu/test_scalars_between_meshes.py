"""A DTensor without dimensions goes to a mesh of other devices. Torch ignores the shape that is
said of it, and on a rank outside its mesh takes that of the local tensor."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import verified

from shardwright.codegen.operations.emit.emit import emit
from shardwright.ir import Mesh, Reshard

pytest.importorskip("triton")


@pytest.mark.slow
def test_it_keeps_its_shape_on_every_rank(tmp_path: Path) -> None:
    """As emitted; and where the result has on such a rank the shape of no elements."""
    source = Mesh({"w": 2}).sharding("[]")
    target = Mesh({"y": 3}, device_ids=[4, 5, 6]).sharding("[]")
    reshard = Reshard((), "float32", source, target)
    bundle = emit(reshard, ("triton_gpu",), single_file=True, features=("dtensor",))
    for name in ("right", "wrong"):
        bundle.write(tmp_path / name)
    module = tmp_path / "wrong" / "triton_gpu.py"
    text = module.read_text()
    assert text.count("(0,) if own.shape else ()") == 1
    module.write_text(text.replace("(0,) if own.shape else ()", "(0,)"))
    right, wrong = verified(tmp_path)
    assert (right.verdict, right.detail) == ("ok", "")
    assert "DTensors" in right.checks
    assert wrong.verdict == "failed"
    assert "shape and dtype of the DTensor" in wrong.detail
