"""Emitted text: goldens of the closed forms, formatting, determinism, length, independence."""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cases import describe, random_reshard
from places import TESTS
from strategies import exactly, message
from style import FORMATTED, LINTED

import shardwright as sw
from shardwright.codegen import registry
from shardwright.codegen.backends.base import Request
from shardwright.codegen.moves import plan
from shardwright.codegen.text.index_functions import index_functions
from shardwright.codegen.text.python_text import function_lines
from shardwright.ir import InputError, Mesh, Reshard
from shardwright.ir.algebra.printers import PYTHON

GOLDEN = TESTS / "golden"


def make(
    axes: dict[str, int],
    shape: tuple[int, ...],
    source: str,
    target: str,
    target_mesh: Mesh | None = None,
    dtype: str = "float32",
    **splits: str,
) -> Reshard:
    mesh = Mesh(axes)
    wanted = (target_mesh or mesh).sharding(target)
    return Reshard(shape, dtype, mesh.sharding(source), wanted, **splits)


CASES = {
    "transpose_2x3": make({"x": 2, "y": 3}, (6, 6), '[{"x"}, {"y"}]', '[{"y"}, {"x"}]'),
    "uneven_rows_to_columns": make({"x": 8}, (50, 13), '[{"x"}, {}]', '[{}, {"x"}]'),
    "sub_axes": make({"x": 4, "y": 2}, (64, 96), '[{"x"}, {}]', '[{"x":(1)2}, {"x":(2)2, "y"}]'),
    "replicas_share": make({"x": 4, "y": 2}, (7,), '[{"x"}]', '[{"y"}]'),
    "nested_source": make(
        {"x": 2, "y": 2}, (5, 3), '[{"x", "y"}, {}]', '[{}, {"y"}]', source_split="nested"
    ),
    "other_devices": make({"x": 4}, (12,), '[{"x"}]', '[{"t"}]', Mesh({"t": 3}, [2, 9, 4])),
    "all_gather": make({"x": 256, "y": 256}, (65536,), '[{"x", "y"}]', "[{}]"),
}


def closed_forms(reshard: Reshard) -> str:
    """The index functions of a reshard's modules as Python."""
    lines = [f"# {describe(reshard)}"]
    for function in index_functions(plan(reshard).exchange):
        lines += ["", f"def {function.name}({', '.join(function.parameters)}):"]
        lines += [f"    {line}" for line in function_lines(PYTHON, function)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", CASES)
def test_golden_closed_forms(name: str, request: pytest.FixtureRequest) -> None:
    path = GOLDEN / f"{name}.py.txt"
    text = closed_forms(CASES[name])
    if request.config.getoption("--update-golden"):
        path.write_text(text)
    assert text == path.read_text()


def test_no_golden_is_orphaned() -> None:
    assert {path.name for path in GOLDEN.glob("*.txt")} == {f"{name}.py.txt" for name in CASES}


def emitted(folder: Path) -> list[Path]:
    """Modules of the golden cases and of random ones, by both backends."""
    reshards = {**CASES, **{f"random{seed}": random_reshard(seed) for seed in range(60)}}
    paths = []
    for name, reshard in reshards.items():
        for module in registry.every():
            path = folder / f"{name}_{module.name}.py"
            path.write_text(module.render(Request(plan(reshard), "shardwright emit")))
            paths.append(path)
    return paths


def test_modules_are_formatted_and_stand_alone(tmp_path: Path) -> None:
    paths = emitted(tmp_path)
    for command in (FORMATTED, LINTED):
        run = subprocess.run(
            [sys.executable, "-m", *command, tmp_path], capture_output=True, text=True
        )
        assert run.returncode == 0, run.stdout[-3000:]
    for path in paths:
        imported = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            if isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").split(".")[0])
        assert "shardwright" not in imported, path


def digest() -> str:
    """A digest of all that the golden cases emit."""
    text = "".join(
        module.render(Request(plan(reshard), "shardwright emit")) + plan(reshard).to_json()
        for reshard in CASES.values()
        for module in registry.every()
    )
    return hashlib.sha256(text.encode()).hexdigest()


def test_same_bytes_under_every_hash_seed() -> None:
    program = "import test_emission; print(test_emission.digest())"
    found = set()
    for seed in ("0", "1", "77"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": f"{TESTS}:{TESTS}/emit"}
        run = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        found.add(run.stdout)
    assert len(found) == 1


@pytest.mark.parametrize("backend", registry.NAMES)
def test_length_does_not_grow_with_the_mesh(backend: str) -> None:
    lengths = []
    for side in (2, 256):
        axes = {"x": side, "y": side}
        reshard = make(axes, (65539, 65536), '[{"x"}, {"y"}]', '[{"y"}, {"x"}]')
        lengths.append(
            len(registry.backend(backend).render(Request(plan(reshard), "shardwright emit")))
        )
    assert lengths[1] <= 1.1 * lengths[0]


def test_a_backend_refuses_what_it_cannot_do() -> None:
    mesh = {"x": 2, "y": 2}
    wide = plan(make(mesh, (4,), '[{"x"}]', '[{"y"}]', dtype="float64"))
    registry.backend("triton_gpu").refuse(wide)
    with pytest.raises(InputError) as caught:
        registry.backend("pallas_tpu").refuse(wide)
    assert str(caught.value) == (
        "dtype: pallas_tpu cannot move this dtype: a TPU has no 64-bit floats\n"
        "got: float64\n"
        "expected: one of bool, int8, int16, int32, int64, uint8, uint16, uint32, float16, "
        "bfloat16, float32, float8_e4m3fn, float8_e5m2"
    )
    huge = plan(make(mesh, (2**31,), '[{"x"}]', '[{"y"}]'))
    with pytest.raises(InputError, match="32-bit indices"):
        registry.backend("triton_gpu").refuse(huge)


def test_axes_that_xla_cannot_name_are_refused() -> None:
    """XLA ends the process on them; Triton modules name no axes."""
    mesh = Mesh({"é": 2})
    reshard = Reshard((8,), "int8", mesh.sharding('[{"é"}]'), mesh.sharding("[{}]"))
    for backend in ("pallas_tpu", "jax_xla"):
        assert message(lambda b=backend: sw.emit(reshard, backends=(b,))) == exactly(
            """
            mesh: axis names must be ASCII for a JAX module
            got: "é"
            expected: a name of ASCII letters, digits and punctuation
            """
        )
    sw.emit(reshard, backends=("triton_gpu",))
