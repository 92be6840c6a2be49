"""Modules whose meshes have the same axes in different orders are verified in one worker."""

from __future__ import annotations

from pathlib import Path

import pytest
from lone import alone
from running import reports_of

from shardwright.codegen.moves import plan
from shardwright.codegen.operations.verify import Case
from shardwright.ir import Mesh, Reshard


def test_orders_of_the_same_axes(tmp_path: Path) -> None:
    """JAX's interpreter alone takes the second mesh's devices to be numbered as the first's."""
    pytest.importorskip("jax")
    cases = []
    for names in ("xyz", "zxy"):
        mesh = Mesh(dict.fromkeys(names, 2))
        sides = mesh.sharding('[{"x"}, {"y"}]'), mesh.sharding('[{"y", "z"}, {}]')
        reshard = Reshard((8, 8), "int32", *sides)
        path = tmp_path / f"{names}.py"
        path.write_text(alone(plan(reshard), "pallas_tpu"))
        cases.append(Case.of(reshard, names, "pallas_tpu", path))
    reports = reports_of("pallas_tpu", cases)
    assert [(each.verdict, each.detail) for each in reports] == [("ok", "")] * 2
