"""Kernels in programs: where they stand and why, their values, and the compiler for TPUs."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from places import TESTS

import shardwright as sw

MESH = sw.Mesh({"t": 4})
ROWS, COLUMNS = '[{"t"}, {}]', '[{}, {"t"}]'


def run(*words: str) -> dict[str, str]:
    command = [sys.executable, str(TESTS / "kernel_process.py"), *words]
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_interpreted_kernels_have_one_devices_values() -> None:
    found = run("values", "lhs and out", "rhs", "rhs:fault")
    assert "off by" in found.pop("rhs:fault")
    assert found == {"lhs and out": "", "rhs": ""}


@pytest.mark.slow
def test_interpreted_kernels_in_a_loop() -> None:
    assert run("values", "looped") == {"looped": ""}


@pytest.mark.skipif(not importlib.util.find_spec("libtpu"), reason="libtpu is not installed")
def test_a_program_with_kernels_compiles_for_tpus() -> None:
    """As many kernels as it says, and nothing is gathered apart."""
    assert run("compiled") == {"kernels": ""}


def shaped(*extents: int) -> Any:
    return jax.ShapeDtypeStruct(extents, jnp.bfloat16)


def choices(fn: Any, *avals: Any, given: Any, out: str = ROWS) -> list[str]:
    program = sw.partition(
        fn,
        *avals,
        mesh=MESH,
        in_shardings=given,
        out_shardings=out,
        mode="cheapest",
        topology="v5e:2x2",
        kernels=("pallas_tpu",),
    )
    page = sw.emit(program).files("kernels")["README.md"]
    found = [str(each) for each in program.kernel_choices]
    assert all(each.partition(", ")[2].partition(": ")[2] in page for each in found)
    return [each.partition(": ")[2] for each in found]


def test_a_matmul_that_takes_no_less_has_no_kernel() -> None:
    small = shaped(64, 64), shaped(64, 64)
    said = choices(lambda x, w: x @ w, *small, given=(ROWS, ROWS))
    assert said == ["no kernel, apart takes no longer on v5e:2x2"]


def test_other_matmuls_say_why() -> None:
    def twice(x: Any, w: Any) -> Any:
        h = x @ w
        return jnp.tanh(h) @ w

    squares = shaped(4096, 1024), shaped(1024, 1024)
    said = choices(twice, *squares, given=(ROWS, ROWS))
    assert said == ["no kernel, what is gathered is used again"] * 2
    said = choices(
        lambda x, w: x @ w,
        *(shaped(8, 512, 1024), shaped(1024, 1024)),
        given=('[{"t"}, {}, {}]', ROWS),
        out='[{"t"}, {}, {}]',
    )
    assert said == ["no kernel, kernels multiply two matrices as they lie, `x @ w`"]


def test_mistakes() -> None:
    x = shaped(8, 8)
    with pytest.raises(sw.InputError) as caught:
        sw.partition(lambda x: x @ x, x, mesh=MESH, kernels=("triton_gpu",), topology="v5e:2x2")
    assert str(caught.value) == (
        "kernels: kernels of programs are of backends that have some\n"
        'got: triton_gpu\nexpected: ("pallas_tpu",)'
    )
    with pytest.raises(sw.InputError) as caught:
        sw.partition(lambda x: x @ x, x, mesh=MESH, kernels=("pallas_tpu",))
    assert str(caught.value) == (
        "kernels: kernels stand where they take less on a topology\n"
        'got: no topology\nexpected: a topology, as "v5e:2x4"'
    )
