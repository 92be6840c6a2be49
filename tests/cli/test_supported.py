"""Versions that `verify` and `compile` have not been run with are noted by them."""

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


@pytest.mark.parametrize("found", ["0.10.2", "0.11.0", "0.12.0.1", "0.12.99"])
def test_versions_inside(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, jax=found, torch="2.13.0+cpu")
    assert [*supported.notes(["jax", "torch", "triton"])] == []


@pytest.mark.parametrize("found", ["0.10.1", "0.13.0", "0.13.0rc1", "1.0", "0.9.12"])
def test_versions_outside(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, jax=found)
    said = f"jax {found} is installed; verify and compile were tested with 0.10.2 to 0.12"
    assert [*supported.notes(["jax"])] == [said]


@pytest.mark.parametrize(("triton", "numpy", "noted"), [("3.6.0", "2.4.0", True),
                         ("3.6.0", "2.3.5", False), ("3.7.1", "2.4.6", False)])  # fmt: skip
def test_numpy_that_an_interpreter_fails_with(
    triton: str, numpy: str, noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, triton=triton, numpy=numpy)
    said = "the interpreter of triton 3.6.0 fails with numpy 2.4.0: pip install 'numpy<2.4'"
    found = [each for each in supported.notes(["triton"]) if "interpreter" in each]
    assert found == [said] * noted


def test_one_version_is_no_range(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, torch="2.11.0")
    monkeypatch.setitem(supported.CHECKED, "torch", ("2.13", "2.13"))
    said = "torch 2.11.0 is installed; verify and compile were tested with 2.13"
    assert [*supported.notes(["torch"])] == [said]


def test_verify_notes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    emitted = run("emit", *flags(name="a"), "--backends", "jax_xla", "-o", tmp_path / "generated")
    assert emitted.code == 0
    installed(monkeypatch, jax="0.13.1")
    done = run("verify", tmp_path / "generated")
    assert done.code == 0
    notes = [line for line in done.err.splitlines() if line.startswith("note: ")]
    said = "jax 0.13.1 is installed; verify and compile were tested with 0.10.2 to 0.12"
    assert notes == [f"note: {said}"]
