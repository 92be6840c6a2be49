"""A model of many equal layers: its module is as long as that of a few."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from places import TESTS

STEP = """
import json, os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
import gpt2
import shardwright as sw
from shardwright.ir.program import ops_of

layers, strategy, mode = int(sys.argv[1]), *sys.argv[2:]
fn, avals, inputs, outputs, mesh = gpt2.case(strategy, layers)
program = sw.partition(
    fn, *avals, mesh=mesh, in_shardings=inputs, out_shardings=outputs, mode=mode
)
text = sw.emit(program).files("step")["jax_spmd.py"]
ops = len(list(ops_of(program.given.body)))
print(json.dumps({"lines": len(text.splitlines()), "ops": ops}))
"""


def step(layers: int, strategy: str, mode: str) -> dict[str, Any]:
    command = [sys.executable, "-c", STEP, str(layers), strategy, mode]
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_more_layers_make_no_longer_module() -> None:
    few, many = (step(layers, "fsdp", "cheapest") for layers in (4, 8))
    assert many["ops"] > 1.8 * few["ops"]
    assert many["lines"] < few["lines"] + 10


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "mode"), [("fsdp+tp", "cheapest"), ("tp", "as_shardy")])
def test_a_step_of_32_layers(mode: str, strategy: str) -> None:
    found = step(32, strategy, mode)
    assert found["lines"] <= 1500
    assert found["lines"] <= 1.5 * found["ops"]
