"""Ranks of a mesh that lists its devices in another order than ascending."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import check

from shardwright.codegen.moves import plan
from shardwright.ir import Mesh, Reshard


@pytest.mark.slow
def test_what_a_device_lacks_is_counted_by_its_rank(tmp_path: Path) -> None:
    """The last column is nobody's: two positions lack nothing, which are not the last ids."""
    mesh = Mesh({"x": 2, "y": 3}, [3, 4, 2, 1, 5, 0])
    source, target = mesh.sharding('[{"x"}, {}]'), mesh.sharding('[{}, {"y"}]')
    check("pallas_tpu", [plan(Reshard((2, 2), "uint32", source, target))], tmp_path)
