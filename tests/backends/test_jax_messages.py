"""What emitted JAX modules say to meshes that are not theirs, to calls inside a shard_map, and to
names that are not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from commands import ok
from places import ROOT

TABLES = """\
[defaults]
backends = ["jax_xla"]
dtype = "float32"

[[reshard]]
name = "grid"
mesh = "x=2,y=3"
shape = [6, 6]
source = "P('x', 'y')"
target = "P('y', 'x')"

[[reshard]]
name = "kernel"
backends = ["pallas_tpu"]
mesh = "x=2,y=3"
shape = [6, 6]
source = "P('x', 'y')"
target = "P('y', 'x')"

[[reshard]]
name = "sub"
mesh = "x=4,y=2"
shape = [16]
source = '[{"x":(1)2}]'
target = '[{"y", "x":(2)2}]'

[[reshard]]
name = "square"
mesh = "x=2,y=2"
shape = [16]
source = "P('x')"
target = "P('y')"

[[reshard]]
name = "apart"
mesh = "x=3"
target_mesh = '<["x"=3], device_ids=[3, 4, 5]>'
shape = [12]
source = "P('x')"
target = "P('x')"

[[group]]
name = "pair"
mesh = "x=2,y=3"
shape = [6, 6]
source = "P('x', 'y')"
target = "P('y', 'x')"
tensors = [{name = "one"}, {name = "two"}]
"""
INSIDE = (
    "ValueError: reshard inside a shard_map over x, y: it takes global arrays, and maps over "
    "shards itself; call it outside, before or after the shard_map"
)
ORDER = (
    "ValueError: target_mesh: got devices [1, 2, 3, 4, 5, 6], expected [0, 1, 2, 3, 4, 5], the "
    "devices of mesh in the same order"
)
MESH = "ValueError: source mesh: got axes {}, expected {}"
GRID = "{'x': 2, 'y': 3}"
SAID = {
    "right": "fine",
    "other names": "fine",
    "a size of one more": "fine",
    "turned": MESH.format("{'y': 3, 'x': 2}", GRID),
    "other sizes": MESH.format("{'x': 3, 'y': 2}", GRID),
    "flat": MESH.format("{'x': 6}", GRID),
    "swapped": MESH.format("{'y': 2, 'x': 2}", "{'x': 2, 'y': 2}"),
    "whole": "fine",
    "parts": "fine",
    "other devices": ORDER,
    "devices twice": "ValueError: target_mesh: got cpu:1 for both logical ids 1 and 3, "
    "expected two devices",
    "group": ORDER,
    "group turned": MESH.format("{'x': 3, 'y': 2}", GRID),
    "mapped": INSIDE,
    "group mapped": INSIDE,
    "no tpu": "ValueError: mesh: got devices of platform cpu, expected TPUs; interpret=True runs "
    "the kernels slowly; a jax_xla module runs on any platform",
    "no backend": "ImportError: grid has no module triton_gpu: expected one of jax_xla",
    "no name": "KeyError: \"unknown name 'grit': expected one of "
    'apart, grid, kernel, one, pair, square, sub, two"',
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    pytest.importorskip("jax")
    folder = tmp_path_factory.mktemp("messages")
    (folder / "tables.toml").write_text(TABLES)
    ok("emit", folder / "tables.toml", "-o", folder / "generated")
    flags = "--xla_force_host_platform_device_count=8"
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    words = [sys.executable, str(ROOT / "tests" / "jax_messages.py"), str(folder / "generated")]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("call", SAID)
def test_what_a_wrong_call_says(said: dict[str, str], call: str) -> None:
    assert said[call] == SAID[call]


def test_every_call_is_expected(said: dict[str, str]) -> None:
    assert said.keys() == SAID.keys()
