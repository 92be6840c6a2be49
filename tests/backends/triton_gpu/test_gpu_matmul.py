"""Triton matmuls whose operands come, and whose sums leave, while devices multiply: against numpy,
in one address space and in processes with flags in shared memory."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from pathlib import Path

import pytest
import running
from gloo_group import multiplied
from matmuls import matrix_shardings, random_matmul, write_module
from sweeps import kept, sampled, swept

import shardwright as sw
from shardwright.codegen.backends.triton_gpu.matmul.context import DTYPES
from shardwright.codegen.checks.matmul_case import MatmulCase
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.codegen.operations.verify.pool import Runner
from shardwright.ir.matmul import SIDES

pytest.importorskip("torch")

BACKEND = "triton_gpu"
PAIR, RING, GRID = sw.Mesh({"x": 2}), sw.Mesh({"x": 4}), sw.Mesh({"x": 2, "y": 2})
TYPES = (
    ("float32", None),
    ("bfloat16", None),
    ("bfloat16", "float32"),
    ("float16", None),
    ("int8", "int32"),
    ("int8", None),
)
SIZES = ((20, 12, 24), (19, 9, 11), (5, 3, 2), (32, 16, 16))
"""Of i, j and k: some split evenly, some not, and some into parts that are empty."""


def matmul(mesh: sw.Mesh, lhs: str, rhs: str, out: str, turn: int = 0) -> sw.Matmul:
    """A matmul of two matrices, its sizes and types by a number."""
    i, j, k = SIZES[turn % len(SIZES)]
    dtype, out_dtype = TYPES[turn % len(TYPES)]
    return sw.Matmul(dtype, ((i, j), lhs), ((j, k), rhs), out, out_dtype, mesh=mesh)


KINDS = {
    "gather rows": (RING, '[{"x"}, {}]', '[{}, {"x"}]', '[{}, {"x"}]'),
    "gather columns": (RING, '[{"x"}, {}]', '[{}, {"x"}]', '[{"x"}, {}]'),
    "gather along j": (RING, '[{}, {"x"}]', '[{}, {"x"}]', '[{}, {"x"}]'),
    "scatter": (RING, '[{}, {"x"}]', '[{"x"}, {}]', '[{"x"}, {}]'),
    "reduce to all": (PAIR, '[{}, {"x"}]', '[{"x"}, {}]', "[{}, {}]"),
    "gather and scatter": (GRID, '[{"y"}, {"x"}]', '[{"x"}, {}]', '[{"x"}, {"y"}]'),
    "terms come, and stay": (
        GRID,
        '[{}, {}], unreduced={"x", "y"}',
        '[{"x"}, {}]',
        '[{"y"}, {}], unreduced={"x"}',
    ),
}
"""What moves, the mesh, and the shardings of lhs, rhs and the result."""


@pytest.fixture
def runner() -> Runner:
    return running.runner(BACKEND)


def written(given: sw.Matmul, name: str, root: Path, *, gradient: bool = False) -> MatmulCase:
    plan = plan_matmul(given, listed=0)
    return write_module(plan, name, root, backend=BACKEND, gradient=gradient)


@pytest.mark.parametrize("kind", sampled(KINDS, "gather and scatter", "terms come, and stay"))
def test_what_comes_and_what_leaves(kind: str, runner: Runner, tmp_path: Path) -> None:
    """Integers bit by bit, floats within the bound on rounding, several calls on one memory."""
    turn = list(KINDS).index(kind)
    report = runner.run(written(matmul(*KINDS[kind], turn), "m", tmp_path))
    assert report.verdict == "ok", report.detail
    assert {"values", "replicas", "stored once", "reads in bounds", "traffic"} <= set(report.checks)


TERMS = {
    "are added": ('[{}, {}], unreduced={"x"}', "[{}, {}]", "[{}, {}]"),
    "are products": ('[{}, {}], unreduced={"x"}', "[{}, {}]", '[{"x"}, {}]'),
    "stay terms": ('[{}, {}], unreduced={"x"}', "[{}, {}]", '[{}, {}], unreduced={"x"}'),
    "of a sum along j": ('[{}, {"x"}]', '[{"x"}, {}]', '[{}, {}], unreduced={"x"}'),
    "are new": ("[{}, {}]", "[{}, {}]", '[{}, {}], unreduced={"x"}'),
    "are the larger": ('[{}, {}], unreduced=max{"x"}', '[{"x"}, {}]', '[{"x"}, {}]'),
    "are infinite": ("[{}, {}]", '[{"x"}, {}]', '[{}, {}], unreduced=max{"x"}'),
    "have two operators": (
        '[{"x"}, {}], unreduced=min{"y"}',
        '[{}, {"y"}], unreduced={"x"}',
        '[{}, {"x"}]',
    ),
}
"""What becomes of terms, and shardings in which an operand or the result is unreduced."""


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind == "are new" else pytest.mark.slow) for kind in TERMS],
)
@pytest.mark.parametrize("turn", [0, pytest.param(5, marks=pytest.mark.exhaustive)])
def test_terms(kind: str, turn: int, runner: Runner, tmp_path: Path) -> None:
    mesh = GRID if '"y"' in str(TERMS[kind]) else PAIR
    report = runner.run(written(matmul(mesh, *TERMS[kind], turn), "m", tmp_path))
    assert report.verdict == "ok", report.detail
    assert {"values", "replicas", "traffic", "order"} <= set(report.checks)


@pytest.mark.parametrize("seed", swept(range(120), 40))
def test_random_matmuls(seed: int, runner: Runner, tmp_path: Path) -> None:
    """Batches, sub-axes, any sides unreduced, gradients of some."""
    rng = random.Random(seed)
    for number in range(3):
        given = random_matmul(rng, batch=rng.choice((0, 0, 1)), dtypes=DTYPES)
        operators = [given.sharding(side).operator for side in SIDES]
        gradient = "float" in given.dtype and {*operators} == {"sum"} and rng.random() < 0.3
        report = runner.run(written(given, f"m{number}", tmp_path, gradient=gradient))
        assert report.verdict == "ok", f"{given}: {report.detail}"


def test_replicas_of_a_product_have_the_same_bits(runner: Runner, tmp_path: Path) -> None:
    """Devices that make the same product add up along j in the same order, not as parts come."""
    lhs, rhs = ((40, 24), "[{}, {}]"), ((24, 56), '[{"y", "x"}, {}]')
    given = sw.Matmul("float32", lhs, rhs, '[{}, {"x"}]', "float32", mesh=GRID)
    report = runner.run(written(given, "m", tmp_path))
    assert report.verdict == "ok", report.detail


@pytest.mark.slow
def test_gradients(runner: Runner, tmp_path: Path) -> None:
    given = matmul(*KINDS["gather and scatter"], 1)
    report = runner.run(written(given, "m", tmp_path, gradient=True))
    assert report.verdict == "ok", report.detail
    assert "derivative" in report.checks


@pytest.mark.slow
def test_a_batch(runner: Runner, tmp_path: Path) -> None:
    """Split, gathered and summed over."""
    sides = ((6, 9, 24), '[{"x"}, {}, {"y"}]'), ((6, 24, 21), '[{}, {"y"}, {"x"}]')
    given = sw.Matmul("float32", *sides, '[{"y"}, {"x"}, {}]', mesh=GRID)
    report = runner.run(written(given, "m", tmp_path))
    assert report.verdict == "ok", report.detail


MESHES = {
    2: sw.Mesh({"x": 2}),
    4: sw.Mesh({"x": 2, "y": 2}),
    8: sw.Mesh({"x": 2, "y": 4}),
}
PARTS = 24


@pytest.mark.parametrize("devices", kept(MESHES, 2, 4))
@pytest.mark.parametrize("part", swept(range(PARTS), PARTS))
def test_every_matmul_of_matrices(devices: int, part: int, runner: Runner, tmp_path: Path) -> None:
    """All triples of shardings of two matrices and their product, sizes and types in turn; on two
    devices unreduced ones too, of which `test_random_matmuls` has others."""
    mesh = MESHES[devices]
    texts = matrix_shardings(mesh.names)
    texts += ['[{}, {}], unreduced={"x"}'] if devices == 2 else []
    every = list(itertools.product(texts, repeat=3))
    # Of many the long sweep takes a few, and the exhaustive one a sample as large as a person
    # waits for: each pair of lhs and rhs, and each pair of an operand and the result, is there.
    step = 7 * PARTS if len(every) > 1000 and part == 0 else PARTS
    for number in range(part, len(every), step):
        given = matmul(mesh, *every[number], turn=number // PARTS + part)
        report = runner.run(written(given, f"m{number}", tmp_path))
        assert report.verdict == "ok", f"{given}: {report.detail}"


@pytest.mark.parametrize("kind", ["gather and scatter"])
def test_processes_with_flags_in_shared_memory(kind: str, tmp_path: Path) -> None:
    """Several calls in a row, to each of which another process comes late."""
    mesh, *rest = KINDS[kind]
    cases = [written(matmul(mesh, *rest, 0), "m0", tmp_path)]
    cases += [written(matmul(mesh, *KINDS["scatter"][1:], 4), "m1", tmp_path)]
    cases += [written(matmul(*KINDS["terms come, and stay"], 5), "m2", tmp_path)]
    for answers in multiplied(cases, mesh.size, tmp_path):
        assert answers == ["ok"] * len(cases)


@pytest.mark.parametrize("seed", swept(range(12), 12))
def test_random_matmuls_in_processes(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    texts = [*matrix_shardings(GRID.names), '[{"x"}, {}], unreduced={"y"}']
    cases = []
    for number in range(6):
        given = matmul(GRID, *(rng.choice(texts) for _ in range(3)), turn=rng.randrange(24))
        cases.append(written(given, f"m{number}", tmp_path))
    for answers in multiplied(cases, 4, tmp_path):
        assert answers == ["ok"] * len(cases)


@pytest.mark.parametrize(
    "kind",
    ["gather and scatter", pytest.param("terms come, and stay", marks=pytest.mark.slow)],
)
def test_a_module_checks_itself(kind: str, tmp_path: Path) -> None:
    written(matmul(*KINDS[kind], 4), "m", tmp_path / "generated")
    (tmp_path / "generated" / "__init__.py").touch()
    (tmp_path / "generated" / "m" / "__init__.py").touch()
    command = [sys.executable, "-m", f"generated.m.{BACKEND}"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "flops done twice, every element of the product right" in run.stdout


REFUSED = {
    "int16": (("int16", '[{"x"}, {}]', "[{}, {}]"), "dtype: triton_gpu cannot multiply this dtype"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_kernels_do_not_multiply_is_refused(what: str) -> None:
    (dtype, lhs, rhs), said = REFUSED[what]
    given = sw.Matmul(dtype, ((8, 8), lhs), ((8, 8), rhs), "[{}, {}]", mesh=PAIR)
    with pytest.raises(sw.InputError) as caught:
        sw.emit(given, backends=(BACKEND,))
    assert str(caught.value).startswith(said)


def test_a_module_alone_has_all_of_its_support() -> None:
    bundle = sw.emit(matmul(*KINDS["scatter"]), backends=(BACKEND,), single_file=True)
    text = bundle.modules("as a test")[f"{BACKEND}.py"]
    assert "class Member:" in text
    compile(text, "triton_gpu.py", "exec")
