"""Kernels in programs: where they stand and why, their values, and the compiler for TPUs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from programs import findings

import shardwright as sw

MESH = sw.Mesh({"t": 4})
ROWS, COLUMNS = '[{"t"}, {}]', '[{}, {"t"}]'


def run(*words: str) -> dict[str, str]:
    found: dict[str, str] = findings("kernel_process.py", *words)
    return found


@pytest.mark.slow
def test_interpreted_kernels_have_one_devices_values() -> None:
    found = run("values", "trained", "rhs:fault")
    assert "off by" in found.pop("rhs:fault")
    assert found == {"trained": ""}


@pytest.mark.slow
def test_interpreted_kernels_in_loops_and_of_tensors() -> None:
    """In a scan, in a function of equal layers, of a batch, of heads, of terms of a sum; of
    transposed operands, and several products."""
    names = ("looped", "layers", "batch", "heads", "terms", "a batch on two axes")
    names = (*names, "rhs", "lhs and out", "back", "several")
    assert run("values", *names) == dict.fromkeys(names, "")


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("libtpu"), reason="libtpu is not installed")
def test_a_program_with_kernels_compiles_for_tpus() -> None:
    """As many kernels as it says, and nothing is gathered apart but what it says."""
    assert run("compiled") == dict.fromkeys(
        ("matrices", "batch", "trained", "several", "heads"), ""
    )


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
    assert said == ["no kernel, a separate matmul takes no longer on v5e:2x2"]


def test_other_matmuls_say_why() -> None:
    def twice(x: Any, w: Any) -> Any:
        h = x @ w
        return jnp.tanh(h) @ w

    squares = shaped(4096, 1024), shaped(1024, 1024)
    said = choices(twice, *squares, given=(ROWS, ROWS))
    assert said == ["no kernel, the gathered operand is used again"] * 2
    vector = shaped(4096, 1024), shaped(1024)
    said = choices(lambda x, v: x @ v, *vector, given=(ROWS, '[{"t"}]'), out='[{"t"}]')
    assert said == ["no kernel, kernels multiply matrices, not vectors"]


def test_operands_are_transposed_where_that_takes_less() -> None:
    """A gradient of weights, of inputs, and several products; the smaller tensors are transposed:
    of the latter the weights, or what they are multiplied by and the result."""

    def gradient(x: Any, g: Any) -> Any:
        return jnp.einsum("sd,sf->df", x, g)

    def back(g: Any, w: Any) -> Any:
        return g @ w.T

    (weights,) = choices(gradient, shaped(8192, 2048), shaped(8192, 4096), given=(ROWS, ROWS))
    assert weights.startswith("a kernel, ")
    (inputs,) = choices(back, shaped(8192, 4096), shaped(4096, 4096), given=(ROWS, ROWS))
    assert inputs.startswith("a kernel, ")
    sequences = '[{}, {"t"}, {}]'
    (several,) = choices(
        lambda q, k: jnp.einsum("bsk,btk->bst", q, k),
        *(shaped(8, 4096, 512),) * 2,
        given=(sequences, sequences),
        out=sequences,
    )
    assert several.startswith("a kernel, ")


def test_a_batch_is_multiplied_as_rows() -> None:
    """A sequence that is split within a batch is turned, which counts, and may take too long."""
    columns, batch = '[{}, {"t"}]', '[{}, {"t"}, {}]'
    sides: dict[str, Any] = {"given": (batch, columns), "out": '[{}, {}, {"t"}]'}
    (one,) = choices(lambda x, w: x @ w, shaped(1, 4096, 1024), shaped(1024, 4096), **sides)
    (two,) = choices(lambda x, w: x @ w, shaped(2, 2048, 1024), shaped(1024, 4096), **sides)
    assert float(two.split()[2]) > float(one.split()[2])
    (none,) = choices(lambda x, w: x @ w, shaped(2, 2048, 128), shaped(128, 4096), **sides)
    assert none == "no kernel, transposing its out costs what it saves"


def test_a_program_lists_its_kernels_and_what_they_save(tmp_path: Path) -> None:
    (tmp_path / "wide.py").write_text(
        "import jax, jax.numpy as jnp\n"
        "arguments = (jax.ShapeDtypeStruct((4096, 1024), jnp.bfloat16),"
        " jax.ShapeDtypeStruct((1024, 4096), jnp.bfloat16))\n"
        """given = '[{"t"}, {}]', '[{}, {"t"}]'\n"""
        "def step(x, w):\n    return x @ w\n"
    )
    (tmp_path / "shardwright.toml").write_text(
        '[mesh]\nt = "t=4"\n[[program]]\nname = "wide"\nmesh = "t"\nfunction = "wide:step"\n'
        'arguments = "wide:arguments"\nin_shardings = "wide:given"\n'
        'out_shardings = \'[{}, {"t"}]\'\nmode = "cheapest"\ntopology = "v5e:2x2"\n'
        'kernels = ["pallas_tpu"]\n'
    )
    command = [sys.executable, "-m", "shardwright", "plan", "wide"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    at = done.stdout.index("matmuls next to a communication:\n    RING_1: out")
    assert "lhs gathered: a kernel" in done.stdout[at:]
    assert ": saves " in done.stdout[at:]


def test_mistakes() -> None:
    x = shaped(8, 8)
    with pytest.raises(sw.InputError) as caught:
        sw.partition(lambda x: x @ x, x, mesh=MESH, kernels=("triton_gpu",), topology="v5e:2x2")
    assert str(caught.value) == (
        "kernels: the backend has no kernels for programs\n"
        'got: triton_gpu\nexpected: ("pallas_tpu",)'
    )
    with pytest.raises(sw.InputError) as caught:
        sw.partition(lambda x: x @ x, x, mesh=MESH, kernels=("pallas_tpu",))
    assert str(caught.value) == (
        "kernels: kernels need a topology on which to compare them\n"
        'got: no topology\nexpected: a topology, for example "v5e:2x4"'
    )
    with pytest.raises(sw.InputError) as caught:
        sw.partition(lambda x: x @ x, x, mesh=MESH, kernels=("pallas_tpu",), topology="h100:4")
    assert str(caught.value) == (
        "kernels: kernels of programs need a topology of TPUs\n"
        "got: pallas_tpu, on h100:4\n"
        'expected: a topology of TPUs, for example "v5e:2x4", or no kernels'
    )
