"""Reshards in which nothing moves, or whose collectives take no time, on a topology."""

from __future__ import annotations

import pytest

from shardwright.codegen.operations.emit.choice import plan
from shardwright.codegen.operations.emit.emit import emit
from shardwright.codegen.operations.emit.verdict import verdicts
from shardwright.ir import Mesh, Reshard

MESH = Mesh({"x": 4})
SPLIT, WHOLE = MESH.sharding('[{"x"}, {}]'), MESH.sharding("[{}, {}]")


@pytest.mark.parametrize("topology", ["v5e:2x2", "h100:4"])
@pytest.mark.parametrize("source", [SPLIT, WHOLE])
def test_verdicts_divide_by_no_zero(topology: str, source: object) -> None:
    made = plan(Reshard((64, 64), "float32", source, SPLIT), topology=topology)
    assert not made.traffic.received_total
    for line in verdicts(made, ("pallas_tpu", "triton_gpu", "jax_xla"), topology, None):
        assert any(
            said in line
            for said in ("nothing moves", "; better is ", "; better, ", ", as fast as ")
        )
    emit(made)
