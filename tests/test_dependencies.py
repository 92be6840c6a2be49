"""Whether the project can be installed: its requirements and pins, resolved from metadata alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT
from sweeps import sampled

REGISTRY = "https://pypi.org/simple"
UNREACHABLE = ("Failed to fetch", "error sending request", "dns error", "timed out")
RETRIES = "3"


def resolve(constraints: Path, python: str = "3.11", extra: str = "test") -> str:
    """What is wrong with `pyproject.toml` under the constraints, or the empty string.

    Metadata is read, no package fetched: from the public registry alone, whatever this machine
    prefers. Without a network the test is skipped, but on CI, which has one, it fails.
    """
    uv = Path(sys.executable).with_name("uv")
    words = [uv, "pip", "compile", "--no-config", "--quiet", "--system-certs"]
    words += ["--default-index", REGISTRY, "--python-version", python]
    words += ["--python-platform", "x86_64-manylinux_2_31", "--extra", extra]
    words += ["-c", constraints, ROOT / "pyproject.toml", "--output-file", os.devnull]
    # Settings of pip's and uv's own would name other registries.
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "UV_"))}
    env["UV_HTTP_RETRIES"] = RETRIES
    result = subprocess.run(words, capture_output=True, text=True, env=env, timeout=300)
    if result.returncode and any(said in result.stderr for said in UNREACHABLE):
        if os.environ.get("CI") == "true":
            pytest.fail(f"the registry cannot be reached: {result.stderr}")
        pytest.skip(f"needs a network: {REGISTRY} cannot be reached")
    return result.stderr if result.returncode else ""


@pytest.mark.parametrize("python", sampled(["3.11", "3.14"], "3.11"))
def test_the_pins_can_be_installed(python: str) -> None:
    assert resolve(ROOT / "constraints.txt", python) == ""


def test_without_torch() -> None:
    """What `make demo EXTRAS=tpu` installs."""
    assert resolve(ROOT / "constraints.txt", extra="tpu") == ""


def test_pins_that_contradict_each_other_are_found(tmp_path: Path) -> None:
    """torch asks for one version of triton; a CPU build of it asks for none and hides that."""
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    wrong = tmp_path / "constraints.txt"
    wrong.write_text(pins.replace("triton==3.7.1", "triton==3.9.0"), encoding="utf-8")
    said = resolve(wrong)
    assert "No solution found when resolving dependencies" in said
    assert "torch==2.13.0 depends on triton" in said


def test_no_network_is_a_failure_on_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    here = sys.modules[__name__]
    monkeypatch.setattr(here, "REGISTRY", "https://registry.invalid/simple")
    monkeypatch.setattr(here, "RETRIES", "0")
    pins = ROOT / "constraints.txt"
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"^the registry cannot be reached: "):
        resolve(pins)
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match=r"^needs a network: "):
        resolve(pins)


@pytest.mark.parametrize(
    ("python", "extra", "installed"),
    [("3.13", "tpu", ["jax==0.12.0.1"]), ("3.12", "gpu", ["torch==2.15.0"])],
)
def test_installing_changes_no_later_runtime(
    python: str, extra: str, installed: list[str], tmp_path: Path
) -> None:
    """The extras resolve beside the runtime that a user has."""
    beside = tmp_path / "installed.txt"
    beside.write_text("\n".join(installed), encoding="utf-8")
    assert resolve(beside, python, extra) == ""


def test_installing_beside_what_is_too_old_is_refused(tmp_path: Path) -> None:
    beside = tmp_path / "installed.txt"
    beside.write_text("jax==0.9.0", encoding="utf-8")
    assert "No solution found" in resolve(beside, "3.13", "tpu")
