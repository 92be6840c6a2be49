"""The explorer: its page loads nothing, its JSON is the plan's, its script shows what is in it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import random_reshard
from places import TESTS
from typer.testing import CliRunner

import shardwright as sw
from shardwright.codegen.cli import app
from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.show.explorer import MOST_TRANSFERS, explored, explorer
from shardwright.codegen.show.link_names import link_names
from shardwright.codegen.verify.case import Case
from shardwright.codegen.verify.oracle import definition as oracle
from shardwright.ir.plan import Plan

TRANSPOSE = sw.plan(sw.Reshard((6, 6), "f32", "P('x', 'y')", "P('y', 'x')", mesh="x=2,y=3"))
SWAP = sw.Reshard((64, 64, 6), "f32", "P('x', 'y')", "P('y', 'x')", mesh="x=4,y=2")
STEPS = sw.plan(SWAP, "basis", topology="v5e:2x4")
VOID = {"meta", "link", "img", "br", "input", "hr"}
LOADS = ("src", "href", "action", "data", "poster", "srcset")


def of(plan: Plan, topology: str | None = None) -> dict[str, Any]:
    """What the page of one plan knows."""
    (found,) = explored({"reshard": plan}, topology)
    return found


class Page(HTMLParser):
    """What a page consists of: elements that are closed in order, ids, what would be loaded."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.loaded: list[str] = []
        self.tags: Counter[str] = Counter()
        self.data = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        given = dict(attrs)
        self.ids += [given["id"]] if given.get("id") else []
        self.loaded += [f"{tag} {name}" for name in LOADS if name in given]
        if tag not in VOID:
            self.open.append(f"{tag} {given.get('id', '')}")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().split()[0] == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script data":
            self.data += data


@pytest.mark.parametrize("plan", [TRANSPOSE, STEPS], ids=["exchange", "steps"])
def test_the_page_is_whole_and_loads_nothing(plan: Plan) -> None:
    text = explorer(plan, "reshard", "v5e:2x4")
    page = Page(text)
    assert page.loaded == []
    assert page.tags["link"] == page.tags["img"] == 0
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|import\(", text)
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}
    assert len(set(page.ids)) == len(page.ids)
    asked = set(re.findall(r'\bat\("([\w-]+)"\)', text))
    assert asked <= {*page.ids}
    assert 'name="viewport"' in text
    assert "prefers-color-scheme: dark" in text


@pytest.mark.parametrize("plan", [TRANSPOSE, STEPS], ids=["exchange", "steps"])
def test_its_json_is_the_plans(plan: Plan) -> None:
    data = json.loads(Page(explorer(plan)).data)
    assert data == json.loads(json.dumps(explored({"reshard": plan})))
    assert data[0]["plan"] == json.loads(plan.to_json())


def test_markup_in_a_name_stays_text() -> None:
    mesh = sw.Mesh({"</script><b>": 2})
    reshard = sw.Reshard((4,), "int8", mesh.sharding('[{"</script><b>"}]'), mesh.sharding("[{}]"))
    page = Page(explorer(sw.plan(reshard)))
    assert page.tags["b"] == 0
    assert json.loads(page.data)[0]["steps"][0]["before"]["axes"] == [["</script><b>", 2]]


@pytest.mark.parametrize("seed", range(12))
def test_what_devices_hold_is_what_the_oracle_says(seed: int) -> None:
    """The ranges before the first step and after the last, at random."""
    reshard = random_reshard(seed)
    made = of(sw.plan(reshard))["steps"]
    if not made:
        return
    case = Case.of(reshard, "explored", "jax_xla", Path("none"))
    for placement, side in ((case.source, made[0]["before"]), (case.target, made[-1]["after"])):
        held = oracle.holdings(placement, reshard.shape)
        assert sorted(side["device_ids"]) == sorted(held)
        for device, ranges in zip(side["device_ids"], side["shards"], strict=True):
            assert [list(range(*each)) for each in ranges] == list(map(list, held[device]))


def test_links_carry_what_transfers_bring() -> None:
    """At a switch: out of each device what it sends, into each what it receives."""
    (carried,) = of(TRANSPOSE, "switch")["links"]["steps"]
    wanted: Counter[str] = Counter()
    moved = TRANSPOSE.transfers()  # type: ignore[union-attr]
    for sender, receiver, elements in zip(
        moved.sender, moved.receiver, moved.elements, strict=True
    ):
        if sender != receiver:
            wanted[f"out of device {sender}"] += 4 * int(elements)
            wanted[f"into device {receiver}"] += 4 * int(elements)
    assert dict(map(tuple, carried)) == wanted
    assert [each for _, each in carried] == sorted(wanted.values(), reverse=True)


@pytest.mark.parametrize("text", ["v5e:2x4", "v5p:2x2x2", "h100:2x4", "switch:8", "torus:3x4"])
def test_links_are_named_by_where_a_message_goes(text: str) -> None:
    """The links that a transfer between neighbours takes, and none but these, bear their names."""
    topology = topology_of(text)
    count = topology.size or 8
    names = link_names(topology, count)
    assert len(names) == topology.bandwidths(count).size
    ones = np.ones((1, 1))
    for sender, receiver in ((0, 1), (1, 0), (0, count - 1)):
        ends = np.array([sender]), np.array([receiver])
        (carried,) = topology.load(*ends, ones, count)
        taken = [names[link] for link in np.flatnonzero(carried)]
        if "→" not in names[0]:
            assert taken[:2] == [f"out of device {sender}", f"into device {receiver}"]
        elif {sender, receiver} == {0, 1} and len(taken) == 1:
            assert taken == [f"{sender} → {receiver}"]
        else:
            assert any(name.startswith(f"{sender} → ") for name in taken)
            assert any(name.endswith(f" → {receiver}") for name in taken)


def test_many_transfers_are_closed_forms() -> None:
    mesh = sw.Mesh({"x": 256})
    plan = sw.plan(sw.Reshard((256, 256), "int8", mesh.sharding('[{"x"}, {}]'),
                              mesh.sharding('[{}, {"x"}]')))  # fmt: skip
    assert len(plan.transfers()) > MOST_TRANSFERS  # type: ignore[union-attr]
    (step,) = of(plan, "switch")["plan"]["steps"]
    assert step["transfers"] is None
    assert step["closed_forms"]
    assert len(explorer(plan)) < 100_000


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
    assert found["before"].startswith("Nothing is chosen")
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
    assert found["after"].startswith("Nothing is chosen")


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


def test_any_plan_is_shown_without_an_error(tmp_path: Path) -> None:
    """Scalars, vectors, no steps, sums, two meshes, closed forms."""
    sum_of = sw.Mesh({"x": 4}).sharding('[{}], unreduced={"x"}')
    two = {"mesh": "x=2", "target_mesh": '<["y"=3], device_ids=[1, 2, 5]>'}
    plans = [
        sw.plan(sw.Reshard((), "f32", "P()", "P()", **two)),
        sw.plan(sw.Reshard((8,), "f32", "P('x')", "P('x')", mesh="x=2"), "basis"),
        sw.plan(sw.reduce_scatter((8,), "f32", sum_of, "x"), "basis"),
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
    assert found[4][1].endswith("1,024 devices: more than 512 are not drawn.")
    assert "closed forms" in found[4][2]


def test_the_command(tmp_path: Path) -> None:
    words = ["show", "--mesh", "x=2,y=3", "--shape", "6x6", "--dtype", "f32", "--source"]
    words += ["P('x', 'y')", "--target", "P('y', 'x')", "--html", str(tmp_path / "page.html")]
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path / 'page.html'}: written\n")
    assert (tmp_path / "page.html").read_text() == explorer(TRANSPOSE)


CONFIG = """
[mesh]
four = "x=4"
two = '<["y"=2], device_ids=[4, 5]>'
[[matmul]]
name = "up"
mesh = "four"
dtype = "f32"
lhs = {shape = [8, 4], sharding = "P('x')"}
rhs = {shape = [4, 8], sharding = "P('x')"}
out = "P('x')"
[[group]]
name = "weights"
mesh = "four"
target_mesh = "two"
dtype = "f32"
tensors = [
  {name = "a", shape = [8, 4], source = "P('x')", target = "P('y')"},
  {name = "b", shape = [8, 4], source = "P('x')", target = "P('y')"},
  {name = "c", shape = [8], source = "P('x')", target = "P()"},
]
"""


@pytest.mark.parametrize(
    ("name", "plans"),
    [
        ("weights", ["a, 2 of 3 tensors", "c, 1 of 3 tensors"]),
        ("up", ["up: lhs", "up: rhs", "up: out"]),
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


def test_a_matmul_has_no_picture(tmp_path: Path) -> None:
    (tmp_path / "shardwright.toml").write_text(CONFIG)
    words = ["show", str(tmp_path / "shardwright.toml"), "up", "--svg", str(tmp_path / "page")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "--svg: a picture as SVG is of a reshard" in done.stderr
    assert not (tmp_path / "page").exists()
