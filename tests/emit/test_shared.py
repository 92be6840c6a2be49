"""Reshards that differ in name alone share a bundle, and all names are in the package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import flags, mistake, ok, run
from strategies import message

import shardwright as sw
from shardwright.codegen.operations.bundles.check import check
from shardwright.codegen.operations.emit.package import package_text

HEAD = """\
[defaults]
mesh = "x=2"
dtype = "float32"
backends = ["triton_gpu"]
"""


def table(name: str, shape: str = "[4, 4]") -> str:
    return (
        f'[[reshard]]\nname = "{name}"\nshape = {shape}\n'
        "source = '[{\"x\"}, {}]'\ntarget = '[{}, {\"x\"}]'\n"
    )


TABLES = HEAD + table("wq") + table("wo", "[4, 6]") + table("wk") + table("wv")
GROUP = '[[group]]\nname = "all"\nmembers = ["wk", "wo", "wq"]\n'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, in which one is, with a config whose bundles are emitted."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shardwright.toml").write_text(TABLES + GROUP)
    ok("emit")
    return tmp_path


def python(home: Path, *words: str) -> str:
    """What a program prints in the folder above the bundles."""
    env = {"PATH": os.environ["PATH"], "TRITON_INTERPRET": "1"}
    run = subprocess.run(
        [sys.executable, *words], cwd=home, env=env, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_equal_reshards_share_a_bundle(home: Path) -> None:
    folders = sorted(path.name for path in (home / "generated").iterdir() if path.is_dir())
    assert folders == ["_support", "all", "wo", "wq"]
    bundles = json.loads((home / "generated/manifest.json").read_text())["bundles"]
    assert {name: entry.get("also", []) for name, entry in bundles.items()} == {
        "wo": [],
        "wq": ["wk", "wv"],
    }
    assert ok("emit").splitlines() == [
        f"generated/{name}: unchanged" for name in ("wq", "wo", "all")
    ]
    assert ok("emit", "wk") == "generated/wq: unchanged\n"
    assert ok("check")
    assert ok("check", "wk")


def test_every_name_is_in_the_package(home: Path) -> None:
    program = "import generated; print(generated.MODULES)"
    modules = {"all": "all", "wk": "wq", "wo": "wo", "wq": "wq", "wv": "wq"}
    assert python(home, "-c", program) == f"{modules}\n"
    program = (
        "from generated import load; wk = load('wk', 'triton_gpu');"
        "print(wk is load('wq', 'triton_gpu'), wk.SHAPE, load('all', 'triton_gpu').__name__)"
    )
    assert python(home, "-c", program) == "True (4, 4) generated.all.triton_gpu\n"
    program = "import generated\ntry:\n  generated.load('w', 'triton_gpu')\nexcept KeyError as e:\n"
    assert (
        python(home, "-c", program + "  print(e)")
        == "\"unknown name 'w': expected one of all, wk, wo, wq, wv\"\n"
    )


def test_members_of_a_group_share_a_bundle(home: Path) -> None:
    said = python(home, "-m", "generated.all.triton_gpu")
    assert said.startswith("ok: ")
    assert f"{2 * 4 * 4 + 4 * 6} elements moved" in said
    result = run("verify", "all")
    assert result.code == 0, result.out
    assert "ok" in result.out


def test_a_name_more_is_no_other_bundle(home: Path) -> None:
    """What was emitted for the first name serves the next."""
    (home / "shardwright.toml").write_text(TABLES + table("wx") + GROUP)
    result = run("check")
    assert (result.code, [line for line in result.out.splitlines() if line[0] in "+-"]) == (
        1,
        [
            "--- wq (manifest.json)",
            "+++ wq (shardwright.toml)",
            '+also = "wx"',
            "--- __init__.py (on disk)",
            "+++ __init__.py (emitted)",
            '+    "wx": "wq",',
        ],
    )
    assert ok("emit").splitlines()[0] == "generated/wq: unchanged"
    assert ok("check")
    assert '"wx": "wq"' in (home / "generated/__init__.py").read_text()


def test_another_name_is_gone(home: Path) -> None:
    rest = TABLES.replace(table("wk"), "").replace(table("wv"), "")
    (home / "shardwright.toml").write_text(rest)
    assert "generated/wq: unchanged\n" in ok("emit")
    assert (home / "generated/__init__.py").read_text() == package_text({"wo": "wo", "wq": "wq"})
    assert ok("check")


def test_the_first_name_is_gone(home: Path) -> None:
    """The next one has a folder of its own; that of the first is removed."""
    rest = TABLES.replace(table("wq"), "")
    (home / "shardwright.toml").write_text(rest)
    said = ok("emit")
    assert "generated/wk: 5 files written\n" in said
    assert "generated/wq: 5 files removed\n" in said
    assert ok("check")


def test_bundles_by_flags_have_folders_of_their_own(tmp_path: Path) -> None:
    """Where a person names the folder, it is written; the package has what is there."""
    for name in ("a", "b"):
        ok("emit", *flags(name=name, backends="jax_xla"), "-o", tmp_path / "out")
    text = (tmp_path / "out/__init__.py").read_text()
    assert text == package_text({"a": "a", "b": "b"})
    assert check(tmp_path / "out") == ()


def test_a_package_of_somebody_else(tmp_path: Path) -> None:
    root = tmp_path / "out"
    root.mkdir()
    (root / "__init__.py").write_text("")  # which git or a person makes, and is nobody's
    words = [*flags(name="a", backends="jax_xla"), "-o", root]
    ok("emit", *words)
    (root / "manifest.json").unlink()
    ok("emit", *words)
    (root / "__init__.py").write_text("VERSION = 1\n")
    assert mistake("emit", *words) == (
        "--output: refusing to overwrite a file that shardwright did not write\n"
        f"got: {root}/__init__.py\n"
        "expected: a different name for the bundle, or that file moved away"
    )
    (problem,) = check(root)
    assert (problem.path, problem.rule) == ("__init__.py", "edited by hand")


def test_a_manifest_keeps_the_names_of_a_bundle(home: Path) -> None:
    """Bundles are made again from it under each name, and written from Python."""
    before = (home / "generated/manifest.json").read_text()
    ok("emit", "generated/manifest.json", "--name", "wv")
    reshard = sw.load_toml("shardwright.toml")[0].reshard()
    sw.emit(reshard, ("triton_gpu",)).write("generated/wq")
    assert (home / "generated/manifest.json").read_text() == before
    said = message(lambda: sw.emit(reshard, ("triton_gpu",)).write("generated/wk"))
    assert said.startswith("path: a config owns this folder")
