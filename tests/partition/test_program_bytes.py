"""The bytes that a program reports are those of the HLO of its own module, for all rows of
`bench/program_bytes.md` on CPU, for some on v5e."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
from places import ROOT, TESTS
from sweeps import kept, sampled

from shardwright.codegen.operations.compile.totals import ENVIRONMENT
from shardwright.codegen.operations.verify.program import AS_WRITTEN

TPU = "v5e:2x4"
STRATEGIES = ("dp", "fsdp", "tp", "fsdp+tp", "tp+sp", "dp+tp+sp", "tp+sp+g", "dp+tp+sp+g")
PATTERNS = (
    *("ZeRO-3 weights, batch 8", "both sides split on one axis", "a parallel block"),
    *("a delayed sum", "8 micro-batches in a scan", "two axes change their dimension"),
)
MODES = ("as_shardy", "cheapest")


def read(mode: str, target: str, *names: str) -> dict[str, list[int]]:
    """What is reported of programs, and what their HLO brings."""
    command = [sys.executable, str(TESTS / "program_bytes_process.py"), mode, target, *names]
    env = {**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join((str(TESTS), str(ROOT)))}
    flags = "--xla_force_host_platform_device_count=8"
    env["XLA_FLAGS"] = f"{flags} {AS_WRITTEN}" if target == "cpu" else flags
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[int]] = json.loads(done.stdout.splitlines()[-1])
    assert found.keys() == {*names}
    return found


def differing(found: dict[str, list[int]]) -> dict[str, list[int]]:
    return {name: each for name, each in found.items() if each[0] != each[1]}


@pytest.mark.parametrize("mode", sampled(MODES, "cheapest"))
def test_of_a_step_and_of_patterns(mode: str) -> None:
    assert differing(read(mode, "cpu", "mlp_step fsdp+tp", *PATTERNS)) == {}


@pytest.mark.parametrize("mode", kept(MODES, "cheapest"))
@pytest.mark.parametrize("model", ["mlp_step", "layer_step"])
def test_of_every_strategy(model: str, mode: str) -> None:
    assert differing(read(mode, "cpu", *(f"{model} {each}" for each in STRATEGIES))) == {}


@pytest.mark.slow
@pytest.mark.skipif(find_spec("libtpu") is None, reason="needs libtpu: pip install libtpu")
def test_on_tpus() -> None:
    """What XLA narrows counts as float32. One other difference is left: of a reduce-scatter of a
    vector XLA makes an all-reduce, which brings twice as much."""
    names = ("mlp_step fsdp+tp", "mlp_step tp+sp", "a parallel block", "a delayed sum")
    found = read("cheapest", TPU, *names)
    assert differing({n: [said + twice, hlo] for n, (said, hlo, twice) in found.items()}) == {}
    assert differing(found).keys() == {"mlp_step fsdp+tp", "mlp_step tp+sp"}


def test_a_difference_is_found() -> None:
    assert differing({"right": [4, 4], "wrong": [4, 8]}) == {"wrong": [4, 8]}
