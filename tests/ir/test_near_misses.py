"""Names that are nearly right are suggested, wherever a name is chosen from a few."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from strategies import message

from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.moves import plan
from shardwright.codegen.registry import check_name
from shardwright.ir import Mesh, Reshard, parse_meshes, parse_sharding
from shardwright.ir.stored import Stored
from shardwright.ir.text.layout_text import parse_layout

MESH = Mesh({"fsdp": 2, "tp": 3})
SPLIT = MESH.sharding('[{"fsdp"}, {}]')
MESHES = parse_meshes('@trainer = <["x"=2]> @server = <["y"=2]>')

NEAR: dict[str, tuple[Callable[[], object], str | None]] = {
    "an axis": (lambda: MESH.sharding('[{"fdsp"}]'), "fsdp"),
    "an axis in capitals": (lambda: MESH.sharding("P(None, 'TP')"), "tp"),
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


MEANT = {
    "q[tp]": "q[{tp}]",
    'q["tp"]': 'q[{"tp"}]',
    "q{tp}": "q[{tp}]",
    "stack(q[{tp}], k)": "stack(0, q[{tp}], k)",
    "cut(0, tp, stack(0, q, k))": "cut(0, {tp}, stack(0, q, k))",
    "stack(q[tp], k{tp})": "stack(0, q[{tp}], k[{tp}])",
}


@pytest.mark.parametrize("text", MEANT)
def test_a_stored_layout_that_is_nearly_right(text: str) -> None:
    """The layout that was meant is expected, and it is one."""
    said = message(lambda: parse_layout(text)).splitlines()
    assert said[0] == "the text is not a stored layout"
    assert said[1:2] + said[-1:] == [f"  {text}", f"expected: {MEANT[text]}"]
    parse_layout(MEANT[text])


def test_a_stored_layout_of_nothing_like_it() -> None:
    assert message(lambda: parse_layout("q[{tp}")).splitlines()[-1] == "expected: ',' or ']'"


@pytest.mark.parametrize("text", ["[{tp}]", "_[{tp}]", "w[{tp}]", '[{"tp"}]', "P('tp')"])
def test_a_layout_of_the_tensor_that_has_the_name_of_the_buffer(text: str) -> None:
    stored = Stored("tp=2", {"w": (4,)}, {"w": text}, "bfloat16")
    assert stored.buffers == {"w": parse_layout("w[{tp}]")}


def test_a_target_mesh_that_was_forgotten() -> None:
    """Not where a target mesh is given."""
    sides = "[{'x'}, {}]".replace("'", '"'), '[{"tp"}, {}]'
    said = message(lambda: Reshard((6, 6), "int8", *sides, mesh="x=2"))
    assert said == (
        "target: an axis must exist in the mesh\n"
        '  [{"tp"}, {}]\n'
        "    ^^^^\n"
        'got: "tp"\n'
        'expected: "x"; or a target_mesh, if the target is on a different mesh'
    )
    said = message(lambda: Reshard((6, 6), "int8", *sides, mesh="x=2", target_mesh="y=2"))
    assert said.splitlines()[-1] == 'expected: "y"'
