"""The version, and what pages say of versions."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from places import ROOT

import shardwright as sw
from shardwright.codegen.cli import supported

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_has_one_source() -> None:
    """That of the package, which the metadata and the command take."""
    assert "version" not in PROJECT
    assert version("shardwright") == sw.__version__
    run = [sys.executable, "-m", "shardwright", "--version"]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert done.stdout == f"shardwright {sw.__version__}\n"


def test_the_changelog_begins_with_it() -> None:
    newest = re.search(r"^## ([\d.]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == sw.__version__


@pytest.mark.parametrize("name", supported.CHECKED)
def test_the_page_says_the_versions(name: str) -> None:
    """The lowest that the extras allow, those that `verify` has been run with, and the pin."""
    page = (ROOT / "docs/versions.md").read_text()
    (row,) = (line for line in page.splitlines() if line.startswith(f"| {name} |"))
    _, _, runs, verified, pinned, *_ = (cell.strip() for cell in row.split("|"))
    needs = [
        Requirement(text) for texts in PROJECT["optional-dependencies"].values() for text in texts
    ]
    (bound,) = {str(each.specifier) for each in needs if each.name == name}
    assert f">={runs}" == f"{bound} and later"
    assert verified == supported.said(name)
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    (pin,) = (line.partition("==")[2] for line in pins if line.startswith(f"{name}=="))
    assert pin in pinned.split(", ")


@pytest.mark.slow
def test_the_hook_runs(tmp_path: Path) -> None:
    """The command of the hook: it passes after `emit`, and fails after an edit."""
    yaml = pytest.importorskip("yaml")
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["id"] in (ROOT / "docs/ci.md").read_text()
    words = [sys.executable, "-m", *hook["entry"].split()]
    config = tmp_path / "shardwright.toml"
    config.write_text(
        '[[reshard]]\nname = "a"\nmesh = "x=2"\nshape = [4]\ndtype = "int8"\n'
        'source = "P(\'x\')"\ntarget = "P()"\nbackends = ["jax_xla"]\n'
    )
    emit = [sys.executable, "-m", "shardwright", "emit"]
    subprocess.run(emit, cwd=tmp_path, check=True, capture_output=True)
    assert subprocess.run(words, cwd=tmp_path, capture_output=True).returncode == 0
    module = tmp_path / "generated" / "a" / "jax_xla.py"
    module.write_text(module.read_text() + "# edited\n")
    failed = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert failed.returncode == 1
    assert "# edited" in failed.stdout + failed.stderr
    for path in ("shardwright.toml", "generated/a/jax_xla.py", "generated/manifest.json"):
        assert re.search(hook["files"], path)
