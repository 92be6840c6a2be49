"""Names that are nearly right are suggested, wherever a name is chosen from a few."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from strategies import message

from shardwright.codegen.backends.registry import check_name
from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.planner import plan
from shardwright.ir import Mesh, Reshard, parse_meshes, parse_sharding

MESH = Mesh({"fsdp": 2, "tp": 3})
SPLIT = MESH.sharding('[{"fsdp"}, {}]')
MESHES = parse_meshes('@trainer = <["x"=2]> @server = <["y"=2]>')

NEAR: dict[str, tuple[Callable[[], object], str | None]] = {
    "an axis": (lambda: MESH.sharding('[{"fdsp"}]'), "fsdp"),
    "an axis of nothing like it": (lambda: MESH.sharding('[{"q"}]'), None),
    "an element type": (lambda: Reshard((6, 6), "bfloat61", SPLIT, SPLIT), "bfloat16"),
    "a split": (lambda: Reshard((6, 6), "int8", SPLIT, SPLIT, "nestd"), "nested"),
    "a mesh": (lambda: parse_sharding("<@trainr, [{}]>", MESHES), "@trainer"),
    "a strategy": (lambda: plan(Reshard((6, 6), "int8", SPLIT, SPLIT), "dirct"), "direct"),
    "a backend": (lambda: check_name("pallas_gpu"), "pallas_tpu"),
    "a backend of nothing like it": (lambda: check_name("cuda"), None),
    "a topology": (lambda: topology_of("v5:2x4"), "v5p"),
    "a figure of one": (lambda: topology_of("switch:8,bandwith=1"), "bandwidth"),
}


@pytest.mark.parametrize("case", NEAR)
def test_a_near_miss(case: str) -> None:
    call, near = NEAR[case]
    rule = message(call).splitlines()[0]
    if near is None:
        assert "did you mean" not in rule
    else:
        assert rule.endswith(f"; did you mean {near}?")
