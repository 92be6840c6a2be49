"""Commands on the config of a folder: by default, by names in it, or by flags."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from commands import TABLES, flags, mistake, ok, run
from strategies import exactly

from shardwright.codegen.operations.verify import Report

# "third" is "second" by another name.
THIRD = TABLES.partition("\n\n")[2].replace("second", "third")
CONFIG = f'out = "made"\n{TABLES}\n{THIRD}'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a config, in which one is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shardwright.toml").write_text(CONFIG)
    return tmp_path


def test_names(home: Path) -> None:
    assert ok("plan", "second").startswith('int8 5: [{"x"}]')
    assert ok("plan", "--name", "second") == ok("plan", "second")
    assert ok("plan", "shardwright.toml", "second") == ok("plan", "second")
    assert ok("show", "first") == ok("show", *flags())


def test_from_a_folder_below(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "src").mkdir()
    monkeypatch.chdir(home / "src")
    said = ok("emit", "second", "--backends", "jax_xla")
    assert said.splitlines()[-1] == "../made/second: 5 files written"


def test_where_no_config_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    expected = "expected: that file, a FILE argument, or flags that describe a reshard"
    for command in ("emit", "plan", "show", "check", "verify"):
        assert (
            mistake(command)
            == f"found no shardwright.toml in this folder or its parents\n{expected}"
        )
        assert mistake(command, "first") == (
            f"found no shardwright.toml in this folder or its parents\ngot: first\n{expected}"
        )


@pytest.mark.parametrize("command", ["emit", "plan", "show", "check", "verify"])
def test_a_name_that_is_nearly_one(command: str, home: Path) -> None:
    assert mistake(command, "secnd") == exactly(
        """
        shardwright.toml has no operation with this name; did you mean second?
        got: secnd
        expected: one of first, second, third
        """
    )


@pytest.mark.parametrize("command", ["emit", "plan", "check", "verify"])
def test_names_and_flags(command: str, home: Path) -> None:
    assert mistake(command, "first", "--mesh", "x=2") == (
        "--mesh: give either a FILE or the flags of a reshard\n"
        "got: both first and --mesh\n"
        "expected: only the FILE, or only flags"
    )


def test_one_is_wanted(home: Path) -> None:
    assert mistake("plan") == (
        "name one of the 3 reshards in shardwright.toml\nexpected: one of first, second, third"
    )


def seen(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What `verify` is asked for: the folders, and what is in them."""
    found = SimpleNamespace(folders=(), files=[])

    def verify(paths: Sequence[Path], **_: object) -> tuple[Report, ...]:
        found.folders = tuple(map(str, paths))
        found.files = [sorted(f.name for f in path.glob("*.py")) for path in paths]
        return (Report("a", "jax_xla", 6, "ok"),)

    monkeypatch.setattr("shardwright.codegen.operations.bundles.verify.verify", verify)
    return found


def test_what_is_verified(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the config; those of names, which may share one; folders that are there; what
    flags describe, emitted for it."""
    asked = seen(monkeypatch)
    (home / "other").mkdir()
    for words, folders in (
        ([], ("made",)),
        (["third", "first"], ("made/second", "made/first")),
        (["shardwright.toml"], ("made",)),
        (["other", "made/first"], ("other", "made/first")),
        (["other", "first"], ("other", "made/first")),
    ):
        ok("verify", *words)
        assert asked.folders == folders
    ok("verify", *flags(backends="jax_xla"))
    assert asked.files == [["__init__.py", "jax_xla.py"]]
    assert not Path(asked.folders[0]).exists()
    assert run("verify", *flags(dtype="float64")).err.startswith(
        "error: --dtype: pallas_tpu cannot"
    )
