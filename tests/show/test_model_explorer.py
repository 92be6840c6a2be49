"""The explorer of a model: its numbers are the plan's; searches and choices show what they should,
in node and in a browser."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from commands import run
from places import ROOT
from random_models import planned
from test_explorer import Page
from test_explorer_script import SAY, in_node

import shardwright as sw
from shardwright.codegen.operations.emit.model_bundle import plan_described
from shardwright.codegen.show.model_explorer import model_data, model_explorer
from shardwright.codegen.spec.config import read_config
from shardwright.ir.model_flow import ModelFlows, Share
from shardwright.ir.model_plan import ModelPlan

CONFIG = """\
[[model]]
name = "tiny"
mesh = "a=2"
target_mesh = '<["tp"=2], device_ids=[2, 3]>'
tensors = { w = [4, 4] }
dtype = "float32"
source = "_[{a}]"
target = "_[{}, {tp}]"
"""
CHANGED = "(n + tensor.turn) % senders.length"
READ = """
    const data = JSON.parse(at("data").textContent);
    const tensors = tensorsOf(data);
"""


def layers(count: int = 3) -> ModelPlan:
    """Layers with q and k, which a server stores packed, and a norm that it has already."""
    tensors = {
        f"layers.{{0..{count - 1}}}.{{q,k}}_proj": (8, 4),
        f"layers.{{0..{count - 1}}}.norm": (4,),
    }
    server = {
        "*.qk": "stack(0, *.q_proj[{tp}], *.k_proj[{tp}])",
        "*.norm": {"layout": "_", "mesh": sw.Mesh({"a": 4})},
    }
    model = sw.Model(tensors, "float32")
    trainer = sw.Rules("a=4", {"*.norm": "_", "*": "_[{a}]"})
    target = sw.Rules(sw.Mesh({"tp": 2}, [4, 5]), server)
    return sw.sync(model, trainer, target, memory_limit=600).plan


def page_of(plan: ModelPlan, folder: Path) -> Path:
    path = folder / "page.html"
    path.write_text(model_explorer(plan, "weights"))
    return path


def links(plan: ModelPlan) -> dict[tuple[int, int], int]:
    """The bytes from device to device, of every piece of every tensor."""
    flows = ModelFlows(plan.kinds.kinds, plan.relays)
    found: Counter[tuple[int, int]] = Counter()
    for member, count in zip(plan.kinds.members, plan.buckets.pieces, strict=True):
        sides = (plan.kinds.places[place].devices for place in (member.source, member.target))
        source, target = sides
        for piece in range(count):
            table = flows.pairs(Share(member.kind, member.turn, piece, count))
            for sender, receiver in zip(*table.nonzero(), strict=True):
                found[source[sender], target[receiver]] += int(table[sender, receiver])
    return dict(found)


def test_the_page_is_whole_and_loads_nothing() -> None:
    text = model_explorer(layers(), "weights")
    page = Page(text)
    assert page.loaded == []
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|import\(", text)
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}
    assert len(set(page.ids)) == len(page.ids)
    assert set(re.findall(r'\bat\("([\w-]+)"\)', text)) <= {*page.ids}
    assert text == model_explorer(layers(), "weights")
    assert json.loads(page.data) == json.loads(json.dumps(model_data(layers())))
    assert json.loads(page.data)["plan"] == layers().to_dict()


def test_names_need_no_escape() -> None:
    model = sw.Model({"</script><b>&": (4,)}, "float32")
    text = model_explorer(sw.sync(model, sw.Rules("a=2", "_"), sw.Rules("a=2", "_")).plan, "<b>")
    assert "</script><b>" not in text
    assert "<b>" not in text
    assert json.loads(Page(text).data)["members"][0][1] == "</script><b>&"


SEEN = """
    const names = tensors.map((each) => [each.name, ...each.buffers, each.turn, each.first]);
    console.log(JSON.stringify({ names, links: linksOf(data, tensors),
      buckets: data.buckets.map((_, number) => tensorsIn(data, tensors, number).length) }));
"""


def compared(plan: ModelPlan, page: Path) -> None:
    """Compare a page's names, links and buckets with the plan."""
    found = in_node(page, READ + SEEN)
    firsts, at = {}, 0
    for member, count in zip(plan.kinds.members, plan.buckets.pieces, strict=True):
        firsts[member] = at
        at += count
    wanted = [
        [each.tensor, each.source_buffer, each.target_buffer, each.turn, firsts[each]]
        for each in sorted(plan.kinds.members, key=lambda each: each[1:])
    ]
    assert found["names"] == wanted
    assert {(sender, to): count for sender, to, count in found["links"]} == links(plan)
    received: Counter[int] = Counter()
    for _, to, count in found["links"]:
        received[to] += count
    assert received == Counter({each: n for each, n in plan.received.items() if n})
    data = model_data(plan)
    assert sum(every for every, _ in data["buckets"]) == plan.total
    assert max(busiest for _, busiest in data["buckets"]) <= plan.buckets.largest
    ends = [0, *plan.buckets.ends]
    pieces = [
        member
        for member, count in zip(plan.kinds.members, plan.buckets.pieces, strict=True)
        for _ in range(count)
    ]
    parts = [len({*pieces[low:high]}) for low, high in pairwise(ends)]
    assert found["buckets"] == parts


@pytest.mark.parametrize("seed", range(6))
def test_the_numbers_are_the_plans(seed: int, tmp_path: Path) -> None:
    plan = planned(seed).weights.plan
    compared(plan, page_of(plan, tmp_path))


def test_names_outside_the_basic_plane(tmp_path: Path) -> None:
    """Scripts count UTF-16 units; a shared start has as many of them."""
    model = sw.Model({"𝒲0": (4,), "𝒲1": (4,), "𝒱": (4,)}, "float32")
    plan = sw.sync(model, sw.Rules("a=2", "_[{a}]"), sw.Rules("b=2", "_")).plan
    compared(plan, page_of(plan, tmp_path))


def test_a_wrong_turn_is_found(tmp_path: Path) -> None:
    """A page whose replicas do not take turns has other links."""
    model = sw.Model({"w{0..3}": (4,)}, "float32")
    target = sw.Rules(sw.Mesh({"b": 1}, [4]), "_")
    plan = sw.sync(model, sw.Rules("a=4", "_"), target).plan
    page = page_of(plan, tmp_path)
    compared(plan, page)
    text = page.read_text()
    assert CHANGED in text
    page.write_text(text.replace(CHANGED, "n % senders.length"))
    with pytest.raises(AssertionError):
        compared(plan, page)


def test_search_and_choice(tmp_path: Path) -> None:
    """Rows for names that differ in numbers; a row, a tensor, a device, a bucket is listed."""
    text = """
        const buttons = (id) => all(at(id), (each) => each.tagName === "BUTTON");
        const rows = () => buttons("groups").map((each) => each.textContent);
        const seen = [[said("found"), rows()]];
        for (const query of ["Q_proj 1.", "qk", "nothing"]) {
            at("search").value = query;
            at("search").fire("input");
            seen.push([said("found"), rows()]);
        }
        at("search").value = "";
        at("search").fire("input");
        const listed = [said("details")];
        click(buttons("groups")[0]); listed.push(said("details"));
        click(buttons("details")[1]); listed.push(said("details"));
        click(buttons("details")[0]); listed.push(said("details"));
        click(withClass("devices", "device").find((each) => each.firstChild === "4"));
        listed.push(said("details"));
        key("ArrowRight"); listed.push(said("bucket-text"));
        key("ArrowLeft"); listed.push(said("bucket-text"));
        click(at("next")); listed.push(said("bucket-text"));
        key("Enter", withClass("buckets", "bucket")[0]); listed.push(said("bucket-text"));
        key("Escape"); listed.push(said("details"), said("bucket-text"));
        console.log(JSON.stringify({ seen, listed }));
    """
    plan = layers()
    count = len(plan.buckets.ends)
    assert count > 1
    found = in_node(page_of(plan, tmp_path), SAY + text)
    assert found["seen"] == [
        [
            "9 of 9 tensors, in 3 rows",
            ["layers.*.q_proj", "layers.*.k_proj", "layers.*.norm"],
        ],
        ["1 of 9 tensors, in 1 row", ["layers.1.q_proj"]],
        ["6 of 9 tensors, in 2 rows", ["layers.*.q_proj", "layers.*.k_proj"]],
        ["0 of 9 tensors, in 0 rows", []],
    ]
    listed = found["listed"]
    assert listed[0] == listed[9]
    assert listed[0].startswith("Choose a row of tensors")
    assert listed[1].startswith("layers.*.q_projfloat32 8x4, from layers.0.q_proj[")
    assert listed[1].endswith("3 tensors, 384 Blayers.0.q_projlayers.1.q_projlayers.2.q_proj")
    assert "stored like layers.0.q_proj" in listed[2]
    assert "buffers: layers.1.q_proj to layers.1.qk" in listed[2]
    assert listed[2].endswith("Who sends it to whomfromtobytes0432143225323532")
    assert re.match(r"Bucket \d of \d\d? tensors?, ", listed[3].replace("\n", ""))
    assert listed[4].startswith("Device 4Sends nothingReceives 384 bytesfromtobytes")
    assert listed[5:9] == [
        f"bucket 1 of {count}",
        f"bucket 1 of {count}",
        f"bucket 2 of {count}",
        f"bucket 1 of {count}",
    ]
    assert listed[10] == f"{count} buckets"


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`show` writes the page that `emit` writes; a picture of a model is refused."""
    (tmp_path / "shardwright.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    assert run("emit").code == 0
    done = run("show", "tiny", "--html", "it.html")
    assert (done.code, done.out) == (0, "it.html: written\n")
    assert Path("it.html").read_text() == Path("generated/tiny/explorer.html").read_text()
    assert "[explorer.html](explorer.html)" in Path("generated/tiny/README.md").read_text()
    refused = run("show", "tiny", "--svg", "it.svg")
    assert refused.err == (
        "error: --svg: models have no picture\ngot: tiny\nexpected: --html FILE\n"
    )


@pytest.mark.slow
def test_the_largest_model_of_the_corpus(tmp_path: Path) -> None:
    """Its page has all names in less than 3.2 MB, and opens in node with the plan's numbers."""
    models = read_config(ROOT / "corpus/models/models.toml").models
    plan = plan_described(next(each for each in models if each.name == "deepseek_v3"))
    page = page_of(plan, tmp_path)
    assert len(plan.kinds.members) == 45_395
    assert page.stat().st_size < 3_200_000
    compared(plan, page)


def test_in_a_browser(page: Any, tmp_path: Path) -> None:
    page.goto(page_of(layers(), tmp_path).as_uri())
    fits = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert page.evaluate(fits), "the page is wider than the screen"
    assert page.locator("#groups button").count() == 3
    page.locator("#search").fill("layers.2.q_proj")
    assert page.locator("#found").inner_text() == "1 of 9 tensors, in 1 row"
    page.locator("#groups button").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("#details h3").first.inner_text() == "layers.2.q_proj"
    page.locator("#details table button").first.click()
    assert page.locator("#details h3").first.inner_text() == "Device 0"
    bar = page.locator(".bucket").nth(1)
    bar.focus()
    page.keyboard.press("Enter")
    assert page.locator("#bucket-text").inner_text().startswith("bucket 2 of ")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#bucket-text").inner_text().startswith("bucket 1 of ")
    page.keyboard.press("Escape")
    assert (
        "Choose a row of tensors" in page.locator("#details").inner_text(timeout=1000)
        or not page.locator("#details-section").is_visible()
    )
    assert page.evaluate(fits), "the page is wider than the screen"
