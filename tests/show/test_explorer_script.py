"""The script of the explorer, run in node with a stand-in for a page.

What is chosen is listed, steps are gone through, and sums are the plan's."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cases import random_reshard
from places import TESTS
from test_explorer import CONFIG, STEPS, TRANSPOSE, Page, of
from typer.testing import CliRunner

import shardwright as sw
from shardwright.codegen.cli import app
from shardwright.codegen.show.explorer import explorer
from shardwright.ir.plan import Plan


def ran(plan: Plan, program: str, folder: Path, topology: str | None = None) -> Any:
    """What a program prints as JSON that uses the page, in node with a stand-in for a browser."""
    (folder / "page.html").write_text(explorer(plan, "reshard", topology))
    return in_node(folder / "page.html", program)


def in_node(page: Path, program: str) -> Any:
    """The same, of a page that is written."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node to run the page's script")
    words = [node, TESTS / "show" / "page_stub.js", page]
    done = subprocess.run(words, input=program, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


SAY = "const said = (id) => at(id).textContent;"


def test_a_device_shows_what_it_sends_and_receives(tmp_path: Path) -> None:
    """By a click to stay; by pointing, until the pointer leaves."""
    program = """
        const devices = withClass("meshes", "device");
        const before = said("details");
        click(devices[1]);
        const chosen = [said("details"), devices.map((each) => each.attributes["aria-pressed"])];
        const peers = devices.map((each) => each.classList.contains("peer"));
        point(devices[2]);
        const other = said("details");
        leave(devices[2]);
        console.log(JSON.stringify({ before, chosen, peers, other, after: said("details") }));
    """
    found = ran(TRANSPOSE, SAY + program, tmp_path)
    text, pressed = found["chosen"]
    assert found["before"].startswith("Choose a ")
    assert text.startswith("Device 1 at x=0, y=1before the step: [0, 3) x [2, 4)")
    assert "after the step: [2, 4) x [0, 3)" in text
    assert "Receives (3)" in text
    assert "Sends (3)" in text
    assert "Keeps (1)" in text
    assert pressed == ["false", "true", "false", "false", "false", "false"]
    assert found["peers"] == [True, False, False, True, True, False]
    assert found["other"].startswith("Device 2 at x=0, y=2")
    assert found["after"] == text


def test_a_tile_shows_its_transfers(tmp_path: Path) -> None:
    program = """
        const tiles = withClass("tensor", "tile");
        key("Enter", tiles[1]);
        const others = tiles.filter((each) => each.classList.contains("other")).length;
        const labels = tiles.map((each) => each.attributes["aria-label"]);
        const text = said("details");
        key("Escape");
        console.log(JSON.stringify({ labels, others, text, after: said("details") }));
    """
    found = ran(TRANSPOSE, SAY + program, tmp_path)
    assert found["labels"][:2] == [
        "tile [0, 2) x [0, 2), 0 → 0",
        "tile [2, 3) x [0, 2), 0 → 1",
    ]
    assert len(found["labels"]) == 16
    assert found["others"] == 15
    assert found["text"].startswith("Tile [2, 3) x [0, 2)")
    assert found["text"].endswith("01[2, 3) x [0, 2)[0, 1) x [0, 2)8")
    assert found["after"].startswith("Choose a ")


def test_steps_are_gone_through(tmp_path: Path) -> None:
    """By buttons, keys and the list; at either end they stay."""
    program = """
        const texts = [said("step-text")];
        const ends = [at("previous").disabled, at("next").disabled];
        click(at("next")); texts.push(said("step-text"));
        key("ArrowRight"); texts.push(said("step-text"));
        key("ArrowRight"); texts.push(said("step-text"));
        click(at("steps").children[0].firstChild); texts.push(said("step-text"));
        key("ArrowLeft"); texts.push(said("step-text"));
        const links = said("links");
        console.log(JSON.stringify({ texts, ends, links, figures: said("figures") }));
    """
    found = ran(STEPS, SAY + program, tmp_path, "v5e:2x4")
    ops = [step.op for step in STEPS.listed()]
    assert [text.split()[1] for text in found["texts"]] == ["1", "2", "3", "3", "1", "1"]
    assert ops[0] in found["texts"][0]
    assert ops[1] in found["texts"][1]
    assert found["ends"] == [True, False]
    assert "Links of v5e:2x4, the busiest first" in found["links"]
    assert f"{STEPS.traffic.received_max:,} bytes" in found["figures"]


MODEL = """
    const [data] = JSON.parse(at("data").textContent);
    const found = data.plan.steps.map((_, step) => ({
        traffic: [...traffic(data, step)], pairs: pairsOf(data, step).map(([, , bytes]) => bytes),
        tiles: tilesOf(data, step).length,
    }));
    console.log(JSON.stringify(found));
"""


@pytest.mark.parametrize("seed", range(3))
def test_its_sums_are_the_plans(seed: int, tmp_path: Path) -> None:
    """Bytes by device, by pair, and tiles, counted by the script and here."""
    plan = sw.plan(random_reshard(seed))
    for step, found in zip(plan.listed(), ran(plan, MODEL, tmp_path), strict=True):
        received: Counter[int] = Counter()
        pairs: Counter[tuple[int, int]] = Counter()
        tiles = set()
        for phase in step.phases():
            moved = phase.transfers
            itemsize = of(plan)["itemsize"]
            for sender, receiver, elements, box in zip(
                moved.sender, moved.receiver, moved.elements, moved.tensor.tolist(), strict=True
            ):
                tiles.add(str(box))
                if sender != receiver:
                    received[int(receiver)] += itemsize * int(elements)
                    pairs[int(sender), int(receiver)] += itemsize * int(elements)
        assert {k: v["received"] for k, v in found["traffic"] if v["received"]} == received
        assert found["pairs"] == sorted(pairs.values(), reverse=True)
        assert found["tiles"] == len(tiles)


def test_a_wrong_script_is_found(tmp_path: Path) -> None:
    """One that counts an element more in every dimension brings other sums."""
    page = tmp_path / "page.html"
    text = explorer(TRANSPOSE)
    right, wrong = "count * (high - low)", "count * (high - low + 1)"
    assert right in text
    page.write_text(text)
    (before,) = in_node(page, MODEL)
    page.write_text(text.replace(right, wrong))
    (after,) = in_node(page, MODEL)
    assert sum(before["pairs"]) == TRANSPOSE.traffic.received_total
    assert sum(after["pairs"]) != TRANSPOSE.traffic.received_total


def test_any_plan_is_shown_without_an_error(tmp_path: Path) -> None:
    """Scalars, vectors, no steps, sums, two meshes, closed forms."""
    sum_of = sw.Mesh({"x": 4}).sharding('[{}], unreduced={"x"}')
    two = {"mesh": "x=2", "target_mesh": '<["y"=3], device_ids=[1, 2, 5]>'}
    plans = [
        sw.plan(sw.Reshard((), "f32", "P()", "P()", **two)),
        sw.plan(sw.Reshard((8,), "f32", "P('x')", "P('x')", mesh="x=2"), "basis"),
        sw.plan(sw.reduce_scatter((8,), "f32", sum_of, "x"), "basis"),
        sw.plan(sw.reduce_scatter((8,), "f32", sum_of, "x"), "direct"),
        sw.plan(sw.Reshard((7, 5, 3), "f32", "P('x')", "P(None, 'y')", **two)),
        sw.plan(sw.Reshard((4096,), "int8", "P('x')", "P()", mesh="x=1024")),
    ]
    program = (
        'console.log(JSON.stringify([said("step-text"), said("meshes"), said("tensor-note")]));'
    )
    found = [ran(plan, SAY + program, tmp_path) for plan in plans]
    assert found[0][0] == "step 1 of 1: exchange"
    assert "before mesh x=2" in found[0][1]
    assert "after mesh y=3" in found[0][1]
    assert found[1][0].startswith("no steps")
    assert "reduce_scatter" in found[2][0]
    assert found[3][0] == "step 1 of 1: exchange"
    assert found[5][1].endswith("1,024 devices: more than 512 are not drawn.")
    assert "closed forms" in found[5][2]


@pytest.mark.parametrize(
    ("name", "plans"),
    [
        ("weights", ["a, 2 of 3 tensors", "c, 1 of 3 tensors"]),
        ("up", ["up: A", "up: B", "up: C"]),
    ],
)
def test_several_plans(name: str, plans: list[str], tmp_path: Path) -> None:
    """Of a group its kinds, of a matmul what it moves: one is shown at a time."""
    (tmp_path / "shardwright.toml").write_text(CONFIG)
    page = tmp_path / "page.html"
    words = ["show", str(tmp_path / "shardwright.toml"), name, "--html", str(page)]
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, done.stdout) == (0, f"{page}: written\n")
    data = json.loads(Page(page.read_text()).data)
    assert [each["name"] for each in data] == plans
    program = """
        const [choice] = all(at("choice"), (each) => each.tagName === "SELECT");
        const shown = () => [said("figures"), said("step-text"), said("meshes")];
        const texts = choice.firstChild ? choice.children.map((option) => {
            choice.value = option.attributes.value;
            choice.fire("change");
            return shown();
        }) : [];
        console.log(JSON.stringify(texts));
    """
    texts = in_node(page, SAY + program)
    for each, (figures, step, _) in zip(data, texts, strict=True):
        assert f"{each['plan']['bytes']['received_max']} bytes" in figures
        count = len(each["plan"]["steps"])
        assert step.startswith(f"step 1 of {count}" if count else "no steps")
