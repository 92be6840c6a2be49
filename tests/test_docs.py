"""The pages of docs/: they build without a warning, and their commands and programs run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from places import ROOT
from sweeps import sampled

import shardwright as sw

DOCS = ROOT / "docs"
IDEAS = {each.stem: each.read_text() for each in sorted((DOCS / "ideas").glob("*.md"))}
DEVICES = "--xla_force_host_platform_device_count=8"


class Block(NamedTuple):
    """A fenced block: its language, the file that it is titled with, its text."""

    language: str
    title: str
    text: str


def blocks(page: str) -> list[Block]:
    found = re.findall(
        r'^```(\w+)(?: title="([^"]*)")?\n(.*?)^```$', page, re.MULTILINE | re.DOTALL
    )
    return [Block(*each) for each in found]


def parts() -> Iterator[tuple[str, str]]:
    """What is run in one folder: a name, and the text."""
    yield "tutorial", (DOCS / "tutorial.md").read_text()
    yield "learning", (DOCS / "learning.md").read_text()
    yield "models", (DOCS / "models.md").read_text()
    yield "layouts", (DOCS / "layouts.md").read_text().replace("```text", "```")
    _, *recipes = re.split(r"^## ", (DOCS / "cookbook.md").read_text(), flags=re.MULTILINE)
    yield from ((recipe.splitlines()[0], recipe) for recipe in recipes)
    tasks, end = (
        (DOCS / "tasks.md").read_text(),
        "## Calibration",
    )  # which needs files of the reader
    _, *found = re.split(r"^## ", tasks[: tasks.index(end)], flags=re.MULTILINE)
    yield from ((task.splitlines()[0], task) for task in found)
    yield from ((f"idea of {name}", text) for name, text in IDEAS.items())


PARTS = dict(parts())

QUICKLY = (
    *("A weight from FSDP to tensor parallelism", "Gradients added up while they are scattered"),
    *("Sequence to heads, in one call", "A matmul whose operands are split"),
    *("idea of basis", "idea of collectives"),
)
"""Parts for every run; the long sweep does them all."""


def needed(text: str) -> Iterator[str]:
    """The packages that a part cannot do without."""
    if re.search(r"import jax|jax_xla\b.*import|--compare|alone\.", text):
        yield "jax"
    if re.search(r"import torch|compile kernels", text):
        yield from ("torch", "triton")


def run(words: list[str], folder: Path) -> str:
    """What a command prints; it has to succeed."""
    bin_folder = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    env |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": DEVICES, "PYTHONPATH": str(folder)}
    env["SHARDWRIGHT_CACHE"] = str(folder / "cache")
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stderr[-3000:]}"
    return done.stdout


def squeezed(text: str) -> str:
    return " ".join(text.split())


def carried_out(page: str, folder: Path) -> int:
    """Do what a page says, and count the blocks that ran."""
    printed: set[str] = set()
    ran = 0
    for block in blocks(page):
        match block.language:
            case "toml":
                (folder / block.title).write_text(block.text)
            case "sh":
                commands = block.text.replace("\\\n", " ").splitlines()
                lines = (run(shlex.split(line), folder).splitlines() for line in commands)
                printed = {squeezed(line) for each in lines for line in each}
                ran += 1
            case "python":
                name = block.title or "program.py"
                (folder / name).write_text(block.text)
                printed = {
                    squeezed(line) for line in run([sys.executable, name], folder).splitlines()
                }
                ran += 1
            case "text":
                assert {squeezed(line) for line in block.text.splitlines()} <= printed
    for picture in re.findall(r"\]\(\.\./pictures/(.*\.svg)\)", page):
        assert (folder / picture).read_text() == (DOCS / "pictures" / picture).read_text()
    return ran


@pytest.mark.parametrize("name", sampled(PARTS, *QUICKLY))
def test_what_is_shown_runs(name: str, tmp_path: Path) -> None:
    """Blocks in order: files are written, commands and programs run, and each line of text that
    stands after a command is a line that it printed."""
    for package in needed(PARTS[name]):
        pytest.importorskip(package)
    assert carried_out(PARTS[name], tmp_path) > 0


def excerpts(page: str) -> list[Block]:
    """The blocks of a page that show a part of a file of ours."""
    return [block for block in blocks(page) if "/" in block.title]


def is_part(excerpt: Block) -> bool:
    return excerpt.text in (ROOT / excerpt.title).read_text()


def test_how_a_kernel_comes_about(tmp_path: Path) -> None:
    """What is shown of templates and emitted modules is in them; the rest runs, and the values that
    the context of the template has are in the text that is shown."""
    page = (DOCS / "kernels.md").read_text()
    assert carried_out(page, tmp_path) == 2
    shown = excerpts(page)
    assert [each.language for each in shown] == ["jinja", "jinja", "py"]
    assert all(map(is_part, shown))
    context = next(block.text for block in blocks(page) if block.language == "python")
    values = re.findall(r'^    "(\w+)": "(.*)",$', context, re.MULTILINE)
    assert len(values) > 5
    assert all(f"        {name} = {value}\n" in shown[-1].text for name, value in values)


def test_what_is_no_part_of_a_file_is_found() -> None:
    page = (DOCS / "kernels.md").read_text().replace("k.deeper", "k.deep")
    assert [is_part(each) for each in excerpts(page)] == [True, False, True]


@pytest.mark.parametrize(
    "page",
    [
        "```sh\nshardwright --version\n```\n\n```text\nshardwright 9.9.9\n```\n",
        "```python\nassert 1 + 1 == 3\n```\n",
        "```sh\nshardwright nosuch\n```\n",
    ],
    ids=["text", "python", "command"],
)
def test_what_is_wrong_on_a_page_is_found(page: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        carried_out(page, tmp_path)


def test_there_are_ten_recipes() -> None:
    assert len(PARTS) > 10


def test_the_site_builds_strictly(tmp_path: Path) -> None:
    """Without a warning: links lead somewhere. Pages load nothing from another host, and no list
    runs into the paragraph before it."""
    pytest.importorskip("mkdocs")
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    loaded = re.compile(r'(?:<script[^>]* src|<link[^>]* href|<img[^>]* src)="?(https?://[^" >]+)')
    collapsed = re.compile(
        r"<(?:p|li)>(?:(?!</p>|</li>).)*\n *- .*", re.DOTALL
    )  # list items in a paragraph
    for page in tmp_path.rglob("*.html"):
        text = page.read_text()
        assert loaded.findall(text) == [], page
        assert collapsed.findall(text) == [], page


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    """That the build is strict, on a copy with a link that leads nowhere."""
    pytest.importorskip("mkdocs")
    page = "# A page\n\n[gone](gone.md), [no such place](#no-such-place)\n"
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(page)
    text = (ROOT / "mkdocs.yml").read_text()
    kept = text[: text.index("hooks:")].replace("build/docs", "site")
    (tmp_path / "mkdocs.yml").write_text(kept)
    build = [sys.executable, "-m", "mkdocs", "build"]
    done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "'gone.md', but the target is not found" in done.stderr
    assert "'#no-such-place', but there is no such anchor" in done.stderr


def test_every_public_name_is_documented() -> None:
    page = (DOCS / "api.md").read_text()
    assert sorted(re.findall(r"^::: shardwright\.(\w+)$", page, re.MULTILINE)) == sw.__all__


def test_every_command_is_documented() -> None:
    from typer.main import get_command

    from shardwright.codegen.cli import app

    commands = {name for name, each in get_command(app).commands.items() if not each.hidden}  # type: ignore[attr-defined]
    page = (DOCS / "command_line.md").read_text()
    assert set(re.findall(r"^<!-- help of (\w+) -->$", page, re.MULTILINE)) == commands


def test_every_idea_has_a_picture_that_its_page_draws() -> None:
    assert {each.stem for each in (DOCS / "pictures").glob("*.svg")} == {*IDEAS}
    for name, text in IDEAS.items():
        assert f"](../pictures/{name}.svg)" in text
        assert f"--svg {name}.svg" in text


def test_the_readme_links_to_pages_that_are_there() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / "README.md").read_text())
    assert "docs/index.md" in links
    for path in links:
        assert (ROOT / path).is_file(), path
