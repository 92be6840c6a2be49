"""A version outside the bounds of the extras is noted by the commands that depend on it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from commands import flags, run

from shardwright.codegen.cli import supported


def installed(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    def version(package: str) -> str:
        if package not in versions:
            raise PackageNotFoundError(package)
        return versions[package]

    monkeypatch.setattr(supported, "version", version)


@pytest.mark.parametrize("found", ["0.10.2", "0.10.3", "0.10.99"])
def test_versions_inside(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, jax=found, torch="2.13.0+cpu")
    assert [*supported.outside(["jax", "torch", "triton"])] == []


@pytest.mark.parametrize("found", ["0.10.1", "0.11.0", "0.11.0rc1", "1.0", "0.9.12"])
def test_versions_outside(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, jax=found)
    said = f"jax {found} is installed, this version supports >= 0.10.2, < 0.11"
    assert [*supported.outside(["jax"])] == [said]


def test_a_folder_without_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, jax="0.9")

    def requires(_: str) -> list[str]:
        raise PackageNotFoundError("shardwright")

    monkeypatch.setattr(supported, "requires", requires)
    assert [*supported.outside(["jax"])] == []


def test_verify_notes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    emitted = run("emit", *flags(name="a"), "--backends", "jax_xla", "-o", tmp_path / "generated")
    assert emitted.code == 0
    installed(monkeypatch, jax="0.12.1")
    done = run("verify", tmp_path / "generated")
    assert done.code == 0
    notes = [line for line in done.err.splitlines() if line.startswith("note: ")]
    assert notes == ["note: jax 0.12.1 is installed, this version supports >= 0.10.2, < 0.11"]
