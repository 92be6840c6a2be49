"""The weights of an 80-layer model, as one group and as single reshards: what is written, and what
changes."""

from __future__ import annotations

import difflib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT
from typer.testing import CliRunner

from shardwright.codegen.cli import app
from shardwright.codegen.spec.config import read_config

CONFIG = ROOT / "corpus" / "checkpoint.toml"


def run(*words: object) -> str:
    """What a command prints."""
    result = CliRunner().invoke(app, [*map(str, words)])
    assert result.exit_code == 0, result.stderr
    return result.stdout


FORMS = ("group", "single")


def config_of(form: str) -> str:
    """The text of a config: the group, or a table for each of its tensors."""
    if form == "group":
        return CONFIG.read_text()
    reshards = read_config(CONFIG).reshards
    assert len(reshards) == 723
    return "\n".join("[[reshard]]\n" + "\n".join(each.lines()) + "\n" for each in reshards)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoint, emitted as a group and as single reshards."""
    home = tmp_path_factory.mktemp("home")
    for form in FORMS:
        config = home / f"{form}.toml"
        config.write_text(config_of(form))
        run("emit", config, "-o", home / form)
    return home


def texts(folder: Path) -> dict[str, list[str]]:
    """The lines of every file."""
    paths = (
        path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in str(path)
    )
    return {str(p.relative_to(folder)): p.read_text().splitlines() for p in paths}


@pytest.mark.parametrize("form", FORMS)
def test_it_is_short(form: str, home: Path) -> None:
    found = texts(home / form)
    assert sum(len(lines) for name, lines in found.items() if name.endswith(".py")) <= 10_000
    if form == "group":
        for backend in ("jax_xla", "triton_gpu"):
            kinds = len(json.loads((home / form / "manifest.json").read_text())["bundles"])
            assert len(found[f"weights/{backend}.py"]) <= 250 + 2 * kinds


@pytest.mark.parametrize("form", FORMS)
def test_another_mesh_changes_few_lines(form: str, home: Path, tmp_path: Path) -> None:
    config = tmp_path / "other.toml"
    text = config_of(form)
    ids = "device_ids=[64, 65, 66, 67, 68, 69, 70, 71]"
    other = text.replace(f'"tp"=8], {ids}', '"tp"=4], device_ids=[64, 65, 66, 67]')
    assert other != text
    config.write_text(other)
    run("emit", config, "-o", tmp_path / form)
    before, after = texts(home / form), texts(tmp_path / form)
    changed = sum(
        line[0] in "+-" and line[:3] not in ("+++", "---")
        for name in before.keys() | after.keys()
        for line in difflib.unified_diff(before.get(name, []), after.get(name, []), lineterm="")
    )
    assert 0 < changed <= 5000


IMPORTED = """
from group import load
both = [load("weights", backend) for backend in ("triton_gpu", "jax_xla")]
assert all(len(module.NAMES) == 723 for module in both)
import single
every = [single.load(name, backend) for backend in ("triton_gpu", "jax_xla")
         for name in single.MODULES]
assert len(every) == 2 * 723 and len({*every}) == 2 * 7
host = both[1]._HOST
print(max(host.wire_bytes()), sum(host.wire_bytes()))
"""


def test_it_is_imported_and_moves_what_its_plan_says(home: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], cwd=home, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    planned = json.loads(run("plan", CONFIG, "weights", "--json"))
    assert [tensor["name"] for tensor in planned["tensors"][:2]] == [
        "embed",
        "layer0_attention_norm",
    ]
    assert len(planned["tensors"]) == 723
    received = planned["bytes"]
    assert done.stdout == f"{received['received_max']} {received['received_total']}\n"
    assert received["received_total"] == sum(
        tensor["bytes"]["bound_received_total"] for tensor in planned["tensors"]
    )


def test_plan_and_show_have_a_part_a_kind() -> None:
    said = run("plan", CONFIG, "weights").splitlines()
    assert said[-3:] == [
        "received max: 17,640,734,720 bytes",
        "received total: 141,125,877,760 bytes",
        "sent max: 2,205,091,840 bytes",
    ]
    shown = run("show", CONFIG, "weights")
    assert shown.count(" of the tensors of weights\n") == 7
    result = CliRunner().invoke(app, ["plan", str(CONFIG), "weights", "--explain"])
    assert (result.exit_code, result.stderr) == (
        2,
        "error: --explain: this option takes a single reshard, not a group\n"
        "got: the group weights\n"
        "expected: one of its members\n",
    )
