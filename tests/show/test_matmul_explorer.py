"""The explorer of a matmul: the rounds of its loop, followed from device to device."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import ok
from test_explorer_script import SAY, in_node

import shardwright as sw
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.codegen.show.matmul_explorer import PartMoved, matmul_explorer, rounds_of
from shardwright.ir.layout import Layout
from shardwright.ir.matmul_plan import MatmulPlan

Key = tuple[tuple[int, int], ...]
GATHER = "P('x')", "P(None, 'x')", "P('x')"
SCATTER = "P(None, 'x')", "P('x')", "P('x')"


def planned(
    sides: tuple[str, str, str],
    loop: str,
    mesh: str = "x=4",
    ids: list[int] | None = None,
    topology: str | None = None,
) -> MatmulPlan:
    own = sw.Mesh.parse(mesh)
    own = own if ids is None else sw.Mesh(own.axes, ids)
    lhs, rhs, out = sides
    matmul = sw.Matmul("float32", ((16, 24), lhs), ((24, 8), rhs), out, mesh=own)
    return plan_matmul(matmul, topology, loop=loop)


CASES = {
    f"{name} {loop} {mesh}": (sides, loop, mesh)
    for name, sides in (("gather", GATHER), ("scatter", SCATTER))
    for loop in ("one", "both")
    for mesh in ("x=2", "x=4", "y=2,x=4", "x=4,y=2")
}


def key(part: PartMoved) -> Key:
    return tuple((low, high) for low, high in part.tensor)


def followed(plan: MatmulPlan, rounds: list[list[PartMoved]]) -> str:
    """Return what is wrong with the rounds of a plan, by following each part; empty if nothing."""
    loop = plan.chosen.loop
    assert loop is not None
    product = plan.chosen.multiplication.shardings[loop.side]
    shape = plan.matmul.shape(loop.side)
    boxes = Layout.of(product, shape, "flat").boxes().tolist()
    passed: dict[tuple[int, Key], frozenset[int]] = {}  # what came by, and whose terms are in it
    came: dict[tuple[int, Key], int] = defaultdict(int)
    for parts in rounds:
        arriving = {}
        for part in parts:
            before = passed.get((part.sender, key(part)), frozenset())
            if part.sender in before:
                return "a device adds its term twice"
            arriving[part.receiver, key(part)] = before | {part.sender}
            came[part.receiver, key(part)] += 1
        passed = arriving
    ends = [len(terms) for terms in passed.values()]
    if any(each != loop.count - 1 for each in ends):
        return f"parts that stop after {sorted(ends)} devices"
    if any(count > 1 for count in came.values()):
        return "a part comes twice"
    for position, box in enumerate(boxes):
        covered = sum(elements(k) for (receiver, k) in came if receiver == position)
        whole = elements(tuple(map(tuple, box)))
        if covered * loop.count != whole * (loop.count - 1):
            return f"device {position} has {covered} elements of {whole}"
    return ""


def elements(box: Any) -> int:
    size = 1
    for low, high in box:
        size *= high - low
    return size


@pytest.mark.parametrize("name", CASES)
def test_every_part_comes_to_every_device_once(name: str) -> None:
    plan = planned(*CASES[name])
    assert plan.chosen.loop is not None
    assert followed(plan, rounds_of(plan)) == ""


def test_rings_in_another_order_go_from_neighbour_to_neighbour() -> None:
    """By the torus: devices of a round are one link apart."""
    plan = planned(GATHER, "both", "x=8", topology="v5e:2x4")
    loop = plan.chosen.loop
    assert loop is not None
    assert loop.order
    assert followed(plan, rounds_of(plan)) == ""
    apart = {
        abs(each.sender // 2 - each.receiver // 2) + abs(each.sender % 2 - each.receiver % 2)
        for parts in rounds_of(plan)
        for each in parts
    }
    assert apart == {1}


def test_planted_faults_are_found() -> None:
    plan = planned(SCATTER, "one")
    rounds = rounds_of(plan)
    assert followed(plan, rounds[1:]).startswith("parts that stop after")
    assert followed(plan, [*rounds, rounds[0]]) != ""
    wrong = [[replace(each, sender=each.receiver) for each in parts] for parts in rounds]
    assert followed(plan, wrong) != ""


def of_page(page: str) -> list[dict[str, Any]]:
    text = page.partition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    found: list[dict[str, Any]] = json.loads(text)
    return found


@pytest.mark.parametrize(("sides", "at"), [(GATHER, (0, 1)), (SCATTER, (2,))])
def test_the_page_has_a_step_a_round_of_the_bytes_of_the_step(
    sides: tuple[str, str, str], at: tuple[int, ...]
) -> None:
    plan = planned(sides, "both", ids=[3, 2, 1, 0], topology="v5e:2x2")
    found = of_page(matmul_explorer(plan, "up", "v5e:2x2"))
    assert [each["name"] for each in found] == ["up: A", "up: B", "up: C"]
    (own,) = (each for each in (found[n] for n in at) if len(each["plan"]["steps"]) > 1)
    ops = [step["op"] for step in own["plan"]["steps"]]
    kind = "all_gather" if sides == GATHER else "reduce_scatter"
    assert ops == [f"round {n} of 3 of {kind}" for n in (1, 2, 3)]
    assert len(own["steps"]) == len(own["links"]["steps"]) == 3
    received: dict[int, int] = defaultdict(int)
    for step in own["plan"]["steps"]:
        for each in step["transfers"]:
            if each["from"] != each["to"]:
                received[each["to"]] += own["itemsize"] * elements(each["tensor"])
    assert {*received.values()} == {own["plan"]["bytes"]["received_max"]}


def test_rounds_are_gone_through(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(matmul_explorer(planned(SCATTER, "one"), "up"))
    program = """
        const [choice] = all(at("choice"), (each) => each.tagName === "SELECT");
        choice.value = 2;
        choice.fire("change");
        const texts = [];
        for (let round = 0; round < 3; round += 1) {
            texts.push(said("step-text"));
            click(all(at("meshes"), (each) => each.tagName === "BUTTON")[0]);
            texts.push(said("details").split("Sends")[0].split("Receives (1)")[1].length > 0);
            key("ArrowRight");
        }
        console.log(JSON.stringify(texts));
    """
    found = in_node(page, SAY + program)
    said = 'of reduce_scatter over "x"'
    rounds = [f"step {n} of 3: round {n} of 3 {said}" for n in (1, 2, 3)]
    assert found[::2] == rounds
    assert found[1::2] == [True] * 3  # one part comes to the first device


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sides = [
        f'{side} = {{shape = [8, 8], sharding = "{spec}"}}'
        for side, spec in zip(("lhs", "rhs"), SCATTER[:2], strict=True)
    ]
    head = '[[matmul]]\nname = "up"\nmesh = "x=4"\ndtype = "f32"\nloop = "one"\n'
    Path("shardwright.toml").write_text("\n".join([head, *sides, f'out = "{SCATTER[2]}"\n']))
    ok("show", "up", "--html", "up.html")
    assert "round 3 of 3 of reduce_scatter" in Path("up.html").read_text()
