"""The JAX modules under jax.set_mesh, on Explicit axes, under jax.vmap, and what of it has
gradients: bit by bit what they do alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import TESTS

from shardwright.codegen.operations.emit.emit import emit
from shardwright.ir import Mesh, Reshard

RUN = TESTS / "jax_transforms.py"
PAIR, FOUR = Mesh({"x": 2, "y": 2}), Mesh({"x": 4})
CASES = {
    "nested": Reshard(
        (5,), "float32", PAIR.sharding("[{}]"), PAIR.sharding('[{"x", "y"}]'), target_split="nested"
    ),
    "uneven": Reshard(
        (5, 6), "bfloat16", FOUR.sharding('[{"x"}, {}]'), FOUR.sharding('[{}, {"x"}]')
    ),
    "elsewhere": Reshard(
        (6, 3),
        "float8_e5m2",
        FOUR.sharding('[{"x"}, {}]'),
        Mesh({"y": 3}, [5, 1, 0]).sharding('[{}, {"y"}]'),
    ),
    "reversed": Reshard(
        (7,), "float32", FOUR.sharding('[{"x"}]'), Mesh({"x": 4}, [3, 2, 1, 0]).sharding("[{}]")
    ),
    "integers": Reshard((5,), "int64", FOUR.sharding('[{"x"}]'), FOUR.sharding("[{}]")),
}


def differing(folders: list[Path]) -> str:
    """What a process says of the modules in these folders."""
    flags = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    run = subprocess.run(
        [sys.executable, str(RUN), *map(str, folders)],
        env=os.environ | flags,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("jax_xla", marks=pytest.mark.slow),
        pytest.param("pallas_tpu", marks=pytest.mark.exhaustive),
    ],
)
def test_transformations(backend: str, tmp_path: Path) -> None:
    for name, reshard in CASES.items():
        emit(reshard, (backend,), "direct", gradient=True, features=("vmap",)).write(
            tmp_path / name
        )
    assert differing([tmp_path / name for name in CASES]) == ""


@pytest.mark.slow
def test_a_fault_is_found(tmp_path: Path) -> None:
    """Padding that adds instead of moving, and a batch that is moved in another order."""
    bundle = emit(CASES["nested"], ("jax_xla",), "direct", single_file=True, features=("vmap",))
    bundle.write(tmp_path / "nested")
    path = tmp_path / "nested" / "jax_xla.py"
    text = path.read_text()
    for right, wrong in (
        ("return _by_bits(move, x) if", "return move(x) + 0 if"),
        (
            "reshard_p.bind(jnp.moveaxis(x, axis, 0)",
            "reshard_p.bind(jnp.moveaxis(x, axis, 0)[::-1]",
        ),
    ):
        assert text.count(right) == 1
        path.write_text(text.replace(right, wrong))
        assert differing([tmp_path / "nested"]) != ""
