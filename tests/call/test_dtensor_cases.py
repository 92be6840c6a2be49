"""`sw.reshard` and descriptions of DTensors as torch's own tests and trainers make them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from test_reshard_call import said, started

from shardwright.codegen.backends.triton_gpu.context import placements
from shardwright.ir.layout import Layout
from shardwright.ir.mesh import Mesh
from shardwright.ir.torch_placements import placed_of

TASKS = ("moves", "redistributed", "descending", "submesh", "trained", "masked", "compiled")


@pytest.mark.slow
def test_dtensors_of_torchs_tests(tmp_path: Path) -> None:
    """Four processes: orders of axes, FSDP2, descending ranks, a submesh, what torch alone does."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    printed = said(started("dtensor_cases.py", tmp_path, str(tmp_path)))
    for task in (*TASKS, "described", "reported", "trees"):
        assert len([*tmp_path.glob(f"{task}.*.ok")]) == 4, printed


@pytest.mark.slow
def test_redistributions_of_torchs_tests(tmp_path: Path) -> None:
    """Every row of a table: even and uneven shards, terms, orders of axes."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    printed = said(started("torch_tables.py", tmp_path, str(tmp_path)))
    assert len([*tmp_path.glob("*.ok")]) == 4, printed


@pytest.mark.parametrize(
    ("ids", "text", "extent", "wanted"),
    [
        (range(8), '[{"x", "y"}]', 16, (0, 0)),
        (range(8), '[{"y", "x"}]', 16, ((0, 2), 0)),
        (range(8), '[{"y", "x"}]', 13, ((0, 2), 0)),
        (range(8), '[{"y"}]', 13, (None, 0)),
        ((1, 0, 3, 2, 5, 4, 7, 6), '[{"x"}]', 13, (0, None)),
        ((1, 0, 3, 2, 5, 4, 7, 6), '[{"y"}]', 13, None),  # torch contradicts itself
        (range(8), '[{"x":(1)2, "y", "x":(2)2}]', 16, None),  # y is after x in the mesh
        (range(8), '[{"x":(1)2}]', 16, None),
    ],
)
def test_placements_of_modules(ids: object, text: str, extent: int, wanted: object) -> None:
    """What `reshard_dtensor` takes and returns; None where placements have no words."""
    sharding = Mesh({"x": 4, "y": 2}, ids).sharding(text)
    assert placements(sharding, Layout.of(sharding, (extent,), "nested")) == wanted


def test_orders_of_axes() -> None:
    """The axis that cuts after a later one is strided; torch before 2.13 has no order."""
    tensor = pytest.importorskip("torch.distributed.tensor")
    mesh, split = SimpleNamespace(shape=(2, 3)), (tensor.Shard(0), tensor.Shard(0))
    for spec, factors in (
        (SimpleNamespace(), [1, 1]),
        (SimpleNamespace(shard_order=((0, (0, 1)),)), [1, 1]),
        (SimpleNamespace(shard_order=((0, (1, 0)),)), [3, 1]),
    ):
        x = SimpleNamespace(_spec=spec, placements=split, device_mesh=mesh)
        assert [each.factor for each in placed_of(x)] == factors


def test_a_split_factor_through_another_axis() -> None:
    """Of half an axis before another one, which torch reads only where the extent divides."""
    sharding = Mesh({"y": 2, "x": 4}).sharding('[{"x":(1)2, "y", "x":(2)2}]')
    assert placements(sharding, Layout.of(sharding, (16,), "nested")) == ((0, 2), 0)
    assert placements(sharding, Layout.of(sharding, (13,), "nested")) is None
