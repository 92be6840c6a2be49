"""`sw.reshard`: arrays and DTensors of every kind, in processes of their own."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from places import TESTS

HERE = TESTS / "call"


def started(script: str, folder: Path, *words: str) -> subprocess.Popen[str]:
    """A process that keeps modules in a folder; what it prints is one text."""
    return subprocess.Popen(
        [sys.executable, str(HERE / script), *words],
        env={**os.environ, "SHARDWRIGHT_CACHE": str(folder / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def said(run: subprocess.Popen[str]) -> str:
    """What a process prints until it ends well."""
    try:
        printed, _ = run.communicate(timeout=300)
    finally:
        run.kill()
    assert run.returncode == 0, printed[-3000:]
    return printed


@pytest.mark.parametrize("count", [12, pytest.param(100, marks=pytest.mark.slow)])
def test_arrays(count: int, tmp_path: Path) -> None:
    """Random shardings, in a jit and not, of Auto and Explicit axes; modules and XLA do some each,
    and nothing else is printed."""
    pytest.importorskip("jax")
    printed = said(started("array_calls.py", tmp_path, str(count)))
    found = re.fullmatch(r"XLA itself=(\d+) jax_xla=(\d+)\n", printed)
    assert found, printed
    assert all(int(times) > count // 10 for times in found.groups()), printed


def test_trees(tmp_path: Path) -> None:
    """Pytrees of arrays, in one exchange."""
    pytest.importorskip("jax")
    assert said(started("tree_calls.py", tmp_path)) == "ok\n"


@pytest.mark.slow
def test_arrays_of_jaxs_tests(tmp_path: Path) -> None:
    """What JAX alone knows or does, as JAX does it."""
    pytest.importorskip("jax")
    tasks = ("unknown", "memory", "terms", "targets", "weak", "mapped")
    printed = said(started("array_cases.py", tmp_path, *tasks))
    assert printed == "".join(f"ok {task}\n" for task in tasks)


@pytest.mark.slow
def test_specs_of_jaxs_tests(tmp_path: Path) -> None:
    """All pairs of a table."""
    pytest.importorskip("jax")
    assert said(started("array_cases.py", tmp_path, "specs")) == "ok specs\n"


def test_processes_of_jax(tmp_path: Path) -> None:
    """Outside of jit arrays are on the devices of two processes, which share the cache."""
    pytest.importorskip("jax")
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = str(probe.getsockname()[1])
    runs = [started("process_calls.py", tmp_path, str(rank), port) for rank in range(2)]
    for printed in map(said, runs):
        who = [line.split(": ")[1].split(",")[0] for line in printed.splitlines() if "P(" in line]
        assert who == ["jax_xla", "XLA itself", "jax_xla"]
        assert "ok" in printed.splitlines()


@pytest.mark.slow
def test_dtensors(tmp_path: Path) -> None:
    """Six processes: values, placements, gradients of seven pairs, terms, other meshes."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    printed = said(started("dtensor_calls.py", tmp_path, str(tmp_path), "7"))
    assert len([*tmp_path.glob("*.ok")]) == 6, printed
    assert "torch itself, in one collective" in printed
    assert "triton_gpu, the busiest rank receives 60 bytes" in printed
