"""The explorer: its page loads nothing, its JSON is the plan's."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import random_reshard
from typer.testing import CliRunner

import shardwright as sw
from shardwright.codegen.checks.case import Case
from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.cli import app
from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.show.explorer import MOST_TRANSFERS, explored, explorer
from shardwright.codegen.show.link_names import link_names
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


def test_what_would_be_loaded_is_found() -> None:
    text = explorer(TRANSPOSE).replace("</main>", '<script src="https://a.b/c.js"></script></main>')
    assert Page(text).loaded == ["script src"]


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


def test_the_picture_of_a_matmul(tmp_path: Path) -> None:
    config, path = tmp_path / "shardwright.toml", tmp_path / "up.svg"
    config.write_text(CONFIG)
    done = CliRunner().invoke(app, ["show", str(config), "up", "--svg", str(path)])
    assert done.exit_code == 0
    assert "Coloured: a device's parts" in path.read_text()


def test_a_matmul_of_many_devices_has_no_picture(tmp_path: Path) -> None:
    config, path = tmp_path / "shardwright.toml", tmp_path / "up.svg"
    assert "x=4" in CONFIG
    config.write_text(CONFIG.replace("x=4", "x=32"))
    done = CliRunner().invoke(app, ["show", str(config), "up", "--svg", str(path)])
    assert done.exit_code == 2
    assert done.stderr == (
        "error: --svg: the matmul has too many devices for a picture\n"
        "got: 32 devices\n"
        "expected: at most 16, or --html\n"
    )
    assert not path.exists()
