"""Mistakes at the command line and in configs, from `mistakes.toml`: the whole message, the exit
code, and nothing lost or half written."""

from __future__ import annotations

import shlex
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from commands import files, run
from places import ROOT

MISTAKES: list[dict[str, Any]] = tomllib.loads((ROOT / "tests/mistakes.toml").read_text())[
    "mistake"
]
CONFIG = """\
out = "made"
[defaults]
dtype = "float32"
backends = ["jax_xla"]
[mesh]
small = "x=2,y=3"

[[reshard]]
name = "transpose"
mesh = "small"
shape = [6, 6]
source = "P('x', 'y')"
target = "P('y', 'x')"

[[reshard]]
name = "gather"
mesh = "small"
shape = [6]
source = "P('x')"
target = "P(None)"
"""


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a config and what it emits."""
    path = tmp_path_factory.mktemp("emitted")
    (path / "shardwright.toml").write_text(CONFIG)
    assert run("emit", path / "shardwright.toml").code == 0
    return path


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda each: each["name"])
def test_mistake(
    mistake: dict[str, Any], emitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(emitted, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # of the config's functions, by Python
    if "config" in mistake:
        (tmp_path / "shardwright.toml").write_text(mistake["config"])
    for name, text in mistake.get("files", {}).items():
        (tmp_path / name).write_text(text)
    before = files(tmp_path)
    result = run(*shlex.split(mistake["typed"]))
    said = (result.err + result.out).strip("\n")
    assert (said, result.code) == (mistake["said"].strip("\n"), mistake.get("code", 2))
    assert files(tmp_path) == before


def test_there_are_enough_and_each_is_its_own() -> None:
    assert len(MISTAKES) >= 120
    for key in ("name", "said"):
        assert len({each[key] for each in MISTAKES}) == len(MISTAKES)
