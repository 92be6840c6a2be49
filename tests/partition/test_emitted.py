"""Emitted programs: values beside one device's, bytes beside their HLO's, planted faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from places import TESTS

STRATEGIES = ("dp", "fsdp", "tp", "fsdp+tp", "tp+sp", "dp+tp+sp", "tp+sp+g", "dp+tp+sp+g")
MODELS = ("mlp", "mlp_step", "attention", "layer", "layer_step")


def run(*words: str) -> dict[str, str]:
    command = [sys.executable, str(TESTS / "emitted_process.py"), *words]
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    assert found
    return found


def wrong(found: dict[str, str]) -> dict[str, str]:
    return {name: said for name, said in found.items() if said}


def test_a_step_has_one_devices_values() -> None:
    assert wrong(run("models", "as_shardy", "mlp_step:fsdp+tp", "layer_step:fsdp+tp")) == {}


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_every_model_in_every_strategy(model: str) -> None:
    names = [f"{model}:{strategy}" for strategy in STRATEGIES]
    assert wrong(run("models", "as_shardy", *names)) == {}


def test_random_functions_have_one_devices_values() -> None:
    assert wrong(run("random", "as_shardy", "rich", "0", "6", "2x2x4")) == {}


@pytest.mark.slow
@pytest.mark.parametrize("mesh", ["1", "2x2", "2x4", "2x2x2"])
@pytest.mark.parametrize("kind", ["plain", "rich"])
def test_random_functions_on_every_mesh(mesh: str, kind: str) -> None:
    assert wrong(run("random", "as_shardy", kind, "100", "106", mesh)) == {}


@pytest.mark.slow
def test_other_models_and_loops() -> None:
    found = wrong(run("more", "as_shardy"))
    refused = found.pop("step of convolutions")
    assert "select_and_scatter_add" in refused
    assert found == {}


def test_planted_faults_are_found() -> None:
    found = run("faults")
    assert [name for name, said in found.items() if "off by" not in said] == []


def test_the_bytes_reported_are_those_of_the_hlo() -> None:
    assert wrong(run("bytes", "as_shardy", "mlp_step:fsdp+tp", "mlp:dp+tp+sp")) == {}
