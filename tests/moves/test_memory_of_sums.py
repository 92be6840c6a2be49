"""A memory limit counts the terms that arrive beside a source and a target shard."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from commands import run
from lone import alone
from strategies import exactly, message

import shardwright as sw
from shardwright.codegen.checks.load import load

MESH = sw.Mesh({"x": 2, "y": 4})
SOURCE, TARGET = '[{}, {}], unreduced={"x", "y"}', "[{}, {}]"
SHARD, TERMS, PART = 4 * 64 * 64, 8, 4 * 64 * 64 // 8
ONCE, TWICE = SHARD + TERMS * SHARD + SHARD, SHARD + TERMS * PART + PART
BACKENDS = ("pallas_tpu", "triton_gpu")
RESHARD = sw.Reshard((64, 64), "float32", SOURCE, TARGET, mesh=MESH)
TOO_LOW = f"""
    memory_limit: a device cannot hold both shards and the terms that arrive in the exchange
    got: {TWICE - 1} bytes
    expected: at least {TWICE}, or the backend jax_xla, whose collectives reduce terms
    """


def planned(limit: int | None) -> sw.Plan:
    return sw.plan(RESHARD, topology="switch", memory_limit=limit, backends=BACKENDS)


def test_terms_are_counted() -> None:
    """All of a target shard in one exchange; of a part of it, then the copies, in two."""
    for limit, ops, peak in (
        (None, "exchange", ONCE),
        (ONCE, "exchange", ONCE),
        (ONCE - 1, "reduce_scatter, all_gather", TWICE),
        (TWICE, "reduce_scatter, all_gather", TWICE),
    ):
        made = planned(limit)
        assert made.prediction is not None
        assert (made.ops, made.prediction.peak_bytes) == (ops, peak)


def test_values_have_no_terms() -> None:
    reshard = sw.Reshard((64, 64), "float32", '[{"x"}, {}]', TARGET, mesh=MESH)
    made = sw.plan(reshard, topology="switch", strategy="direct")
    assert made.prediction is not None
    assert made.prediction.peak_bytes == SHARD // 2 + SHARD


def test_kernels_hold_so_much(tmp_path: Path) -> None:
    """The arrays of terms as the modules of both plans state them."""
    for limit, name, held in ((None, "TARGET_TERMS", SHARD), (ONCE - 1, "PART_TERMS", PART)):
        path = tmp_path / f"{name}.py"
        path.write_text(alone(planned(limit), "pallas_tpu"))
        pytest.importorskip("jax")
        assert math.prod(getattr(load(path), name).local) * 4 == TERMS * held


def test_a_limit_that_is_too_low() -> None:
    assert message(lambda: planned(TWICE - 1)) == exactly(TOO_LOW)
    refused = message(lambda: planned(2 * SHARD - 1))
    assert refused.splitlines()[0] == (
        "memory_limit: a device cannot hold its source and target shards at once"
    )
    by_collectives = sw.plan(RESHARD, memory_limit=2 * SHARD, backends=("jax_xla",))
    assert by_collectives.ops == "all_reduce"
    apart = sw.Reshard(
        (64,), "int8", '[{}], unreduced={"x"}', "[{}]", mesh={"x": 2},
        target_mesh=sw.Mesh({"x": 2}, [2, 3]),
    )  # fmt: skip
    said = message(lambda: sw.plan(apart, memory_limit=191, backends=BACKENDS))
    assert "expected: at least 192, " in said


def test_every_door_says_so(tmp_path: Path) -> None:
    given = {
        "mesh": "x=2,y=4",
        "shape": "64x64",
        "dtype": "float32",
        "source": SOURCE,
        "target": TARGET,
        "memory_limit": str(TWICE - 1),
        "topology": "switch",
    }
    words = [word for key, text in given.items() for word in (f"--{key.replace('_', '-')}", text)]
    said = exactly(TOO_LOW).removeprefix("memory_limit")
    result = run("plan", *words)
    assert (result.code, result.err.rstrip("\n")) == (2, f"error: --memory-limit{said}")
    config = tmp_path / "sums.toml"
    limit = given.pop("memory_limit")
    lines = [f"{key} = '{text}'" for key, text in given.items()]
    config.write_text("\n".join(["[[reshard]]", "name = 'sum'", *lines, f"memory_limit = {limit}"]))
    result = run("plan", config, "sum")
    assert result.code == 2
    line = f"memory_limit = {limit}"
    rule, *rest = said.removeprefix(": ").splitlines()
    assert result.err.splitlines() == [
        f"error: {config}, line 9, reshard 'sum', memory_limit: {rule}",
        f"  {line}",
        f"  {'^' * len(line)}",
        *rest,
    ]
