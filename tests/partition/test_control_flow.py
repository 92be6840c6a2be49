"""Loops, branches, what is computed again and manual parts: values beside one device, what reports
say, planted faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from places import TESTS

import shardwright as sw

MESH = sw.Mesh({"d": 2, "t": 2})
MODES = ("cheapest", "as_shardy")


def run(*words: str) -> dict[str, str]:
    command = [sys.executable, str(TESTS / "flow_process.py"), *words]
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def wrong(found: dict[str, str]) -> dict[str, str]:
    assert found
    return {name: said for name, said in found.items() if said}


def test_every_case_has_one_devices_values() -> None:
    found = run("cases", "2x2", "cheapest", "forward")
    assert wrong(found) == {}
    assert len(found) == 21


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("what", ["forward", "gradients"])
@pytest.mark.parametrize("sizes", ["2x2", "2x4", "1x1"])
def test_every_case_in_every_mode(sizes: str, what: str, mode: str) -> None:
    assert wrong(run("cases", sizes, mode, what)) == {}
