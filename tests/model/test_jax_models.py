"""Models on JAX devices: right, in buckets, and errors for faults."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from places import TESTS

FAULTS = {
    "missing": r"ValueError: state: got none for model\.layers\.0\.self_attn\.q_proj, expected",
    "extra": "ValueError: state: got unknown more, expected an array for each source buffer",
    "dtype": r"ValueError: state, .*: got float32\[64, 16\], expected bfloat16\[",
    "sharding": "ValueError: state, .*: got SingleDeviceSharding.*, expected NamedSharding",
    "progress": "ValueError: progress: got 3, expected a function of the bytes done",
    "changed": r"RuntimeError: model\.layers\.0.*: device 2 did not receive the bytes that dev",
}


def said(*asked: str) -> list[str]:
    """What is said of toys."""
    command = [sys.executable, str(TESTS / "model_jax.py"), *asked]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.slow
def test_faults() -> None:
    """Before anything moves, or by a digest."""
    for name, line in zip(FAULTS, said(*(f"qwen,3,9000,{name}" for name in FAULTS)), strict=True):
        assert re.match(FAULTS[name], line), line


@pytest.mark.slow
def test_toy_models() -> None:
    """On 8 and 12 devices, disjoint and overlapping, with little memory and with much."""
    asked = [
        "llama,8,1000000,plain",
        "qwen,12,3000,digest",
        "deepseek,overlapping,100000,plain",
    ]
    every = [line.split(", ") for line in said(*asked)]
    assert [verdict for verdict, *_ in every] == ["right"] * 3
    assert int(every[1][1].split()[0]) > 5


@pytest.mark.slow
@pytest.mark.parametrize("digest", ["plain", "digest"])
def test_memory(digest: str) -> None:
    """By the compiler's count no device holds more than the limit beside its buffers, and no unit
    more than half of it, while it moves what is several times as large."""
    limit = 2 << 20
    command = [sys.executable, str(TESTS / "model_jax_memory.py"), "llama", "256", str(limit)]
    done = subprocess.run(
        [*command, digest], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout)
    assert said["results"] > 4 * limit
    assert limit // 2 < said["most"] <= limit
    for account, counted in said["units"]:
        assert counted <= account + 256, said  # addresses of results count too
        assert account <= limit // 2, said
