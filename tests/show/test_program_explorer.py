"""The explorer of a program: what is searched for is found, in node and in a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from a_program import forgotten, written
from commands import run
from test_explorer import Page
from test_explorer_script import SAY, in_node
from test_program_graph import deep, of_pattern

import shardwright as sw
from shardwright.codegen.show.program_explorer import program_data, program_explorer


def step(p: Any, x: Any) -> Any:
    h = jnp.tanh(x @ p["w1"])
    return h @ p["w2"] + x.sum(0)


STEP = step.__code__.co_firstlineno
FILE = Path(__file__).name


def program() -> sw.Partitioned:
    """A program of a function of this file."""
    shape = lambda *n: jax.ShapeDtypeStruct(n, jnp.float32)  # noqa: E731
    avals = {"w1": shape(16, 32), "w2": shape(32, 16)}, shape(8, 16)
    given = ({"w1": '[{}, {"t"}]', "w2": '[{"t"}, {}]'}, '[{"d"}, {}]')
    return sw.partition(step, *avals, mesh=sw.Mesh({"d": 4, "t": 2}), in_shardings=given)


def page_of(made: sw.Partitioned, folder: Path, topology: str | None = "v5e:2x4") -> Path:
    path = folder / "page.html"
    path.write_text(program_explorer(made, "step", topology))
    return path


def test_the_page_is_whole_and_loads_nothing() -> None:
    text = program_explorer(program(), "step", "v5e:2x4")
    page = Page(text)
    assert page.loaded == []
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|import\(", text)
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}
    assert len(set(page.ids)) == len(page.ids)
    assert set(re.findall(r'\bat\("([\w-]+)"\)', text)) <= {*page.ids}
    assert text == program_explorer(program(), "step", "v5e:2x4")
    data = json.loads(page.data)
    assert data["plan"] == json.loads(program().to_json("v5e:2x4"))
    known = {**program_data(program(), "v5e:2x4"), "totals": []}
    assert data == json.loads(json.dumps(known))
    (line,) = [line for line in data["sources"] if line.endswith(f":{STEP + 2}")]
    assert data["sources"][line] == 'return h @ p["w2"] + x.sum(0)'


FOUND = """
    const shown = (query) => {
        at("search").value = query;
        at("search").fire("input");
        const rows = all(at("communications"), (each) => each.tagName === "TR").slice(1);
        const left = rows.filter((row) => !("hidden" in row.attributes));
        return [said("found"), left.map((row) => row.firstChild.textContent)];
    };
"""


def test_the_search(tmp_path: Path) -> None:
    """By line as a number, by words in any order; a number is no part of another."""
    line = STEP + 2
    queries = [f"{line}", f":{line}", f"{line}"[:-1], "sums ALL-reduce", "p_w2", "gather", ""]
    asked = f"{json.dumps(queries)}.map((query) => shown(query))"
    text = f"{SAY}{FOUND}console.log(JSON.stringify({asked}));"
    found = in_node(page_of(program(), tmp_path), text)
    both = ["C1", "C2"]
    assert [rows for _, rows in found] == [both, both, [], both, ["C1"], [], both]
    assert found[0][0] == "2 of 2 communications, 7 of 12 values"
    assert found[2][0] == "0 of 2 communications, 0 of 12 values"
    assert found[-1][0] == "2 of 2 communications, 12 of 12 values"


def test_what_is_chosen_is_listed(tmp_path: Path) -> None:
    """A communication by its row, by its edge and by keys; a value by its box; none by Escape."""
    program_text = """
        const details = () => said("details");
        const seen = [details()];
        click(withClass("graph", "node").at(-1)); seen.push(details());
        key("ArrowLeft"); seen.push(details());
        key("ArrowLeft"); seen.push(details());
        click(at("next")); seen.push(details());
        key("Enter", withClass("graph", "node")[1]); seen.push(details());
        key("Escape"); seen.push(details());
        const chosen = withClass("graph", "chosen").length;
        const [note, figures] = [said("graph-note"), said("figures")];
        console.log(JSON.stringify({ seen, chosen, note, figures }));
    """
    found = in_node(page_of(program(), tmp_path), SAY + program_text)
    seen = found["seen"]
    assert seen[0].startswith("Choose a ")
    assert seen[1].startswith("C2: all-reduce over d")
    assert "96 B" in seen[1]
    assert 'return h @ p["w2"] + x.sum(0)' in seen[1]
    assert "constrain `x.sum(0)` to " in seen[1]
    assert "(64 B less in this row)" in seen[2]
    assert "µs on v5e:2x4" in seen[1]
    assert seen[2].startswith("C1: all-reduce over t")
    assert seen[3] == seen[2]
    assert seen[4] == seen[1]
    assert seen[5].startswith("p_w2: f32[32@t,16]argumentGoes into")
    assert seen[6] == seen[0]
    assert found["chosen"] == 0
    assert "left out" not in found["note"]
    assert "busiest device receives224 B" in found["figures"]


def test_what_others_take_is_beside(tmp_path: Path) -> None:
    totals = (
        {"name": "jax.jit, CPU", "received": 448, "why": ""},
        {"name": "Shardy's passes", "received": None, "why": "they <end>"},
    )
    path = tmp_path / "page.html"
    path.write_text(program_explorer(program(), "step", None, totals))
    (figures,) = in_node(path, SAY + 'console.log(JSON.stringify([said("figures")]));')
    assert "jax.jit, CPU, for comparison448 B" in figures
    assert figures.endswith("Shardy's passes, for comparisonthey <end>")


def test_why_is_told_of_a_value(tmp_path: Path) -> None:
    program_text = """
        const label = (each) => each.attributes["aria-label"];
        const box = withClass("graph", "node").find((each) => label(each).startsWith("h:"));
        click(box);
        console.log(JSON.stringify([said("details"), box.attributes["aria-pressed"]]));
    """
    text, pressed = in_node(page_of(program(), tmp_path), SAY + program_text)
    assert '%h dimension 1 got "t" from %h_dot through tanh' in text
    assert pressed == "true"


def test_pages_of_any_program(tmp_path: Path) -> None:
    """Without communications, with a loop, with values that are left out, without a topology."""
    alone = sw.partition(
        lambda x: x + 1, jax.ShapeDtypeStruct((4,), jnp.float32), mesh=sw.Mesh({"d": 2})
    )
    ids = ("communications", "graph-note", "figures")
    text = f"console.log(JSON.stringify({json.dumps(ids)}.map(said)));"
    pages = (alone, of_pattern("8 micro-batches in a scan"), deep(12))
    found = [in_node(page_of(made, tmp_path, None), SAY + text) for made in pages]
    assert found[0][0] == "No device receives anything."
    assert "7 MiB" not in found[1][2]
    assert "56 MiB" in found[1][2]
    assert "values that no communication leads from or to are left out" in found[2][1]


def test_a_wrong_search_is_found(tmp_path: Path) -> None:
    """One that looks for numbers as parts of lines finds more."""
    page = page_of(program(), tmp_path)
    right = 'lineNumber(line) === asked.replace(":", "")'
    text = page.read_text()
    assert right in text
    page.write_text(text.replace(right, 'lineNumber(line).includes(asked.replace(":", ""))'))
    asked = f'console.log(JSON.stringify(shown("{str(STEP + 2)[:-1]}")));'
    assert in_node(page, SAY + FOUND + asked)[1] == ["C1", "C2"]


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From another folder too: lines are those of the config's folder."""
    (tmp_path / "home").mkdir()
    written(tmp_path / "home")
    monkeypatch.chdir(tmp_path)
    forgotten()
    for flag in ("--svg", "--html"):
        path = tmp_path / f"mlp.{flag[2:]}"
        done = run("show", "home/shardwright.toml", "mlp", flag, path)
        assert (done.code, done.out) == (0, f"{path}: written\n")
    assert "C1 all-reduce t 128 B" in (tmp_path / "mlp.svg").read_text()
    data = json.loads(Page((tmp_path / "mlp.html").read_text()).data)
    assert data["sources"] == {"a_step.py:5": 'return jnp.tanh(x @ p["w1"]) @ p["w2"]'}
    forgotten()


def test_in_a_browser(page: Any, tmp_path: Path) -> None:
    page.goto(page_of(program(), tmp_path).as_uri())
    rows = page.locator("#communications tr")
    assert rows.count() == 3
    page.locator("#search").fill("p_w2")
    assert page.locator("#found").inner_text() == "1 of 2 communications, 1 of 12 values"
    assert page.locator("#communications tr:visible").count() == 2
    page.get_by_role("button", name="Next →").click()
    assert page.locator("#details h3").first.inner_text() == "C1: all-reduce over t"
    assert page.locator("#graph .node.chosen").count() == 1
    page.locator("#search").fill("")
    box = page.locator("#graph .node").nth(2)
    box.focus()
    page.keyboard.press("Enter")
    assert page.locator("#details h3").first.inner_text() == "x: f32[8@d,16]"
    page.locator("#details button").first.click()
    assert page.locator("#details h3").first.inner_text().startswith("h_dot")
    page.keyboard.press("Escape")
    assert "Choose a " in page.locator("#details").inner_text()
    across = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert page.evaluate(across), "the page is wider than the screen"
