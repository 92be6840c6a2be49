"""Every sharding of two matrices and their product, against numpy, bit by bit: in one process and
in two.

The long sweep takes a part of them; `make exhaustive` all, at evenly split and at uneven sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from matmuls import matrix_shardings, write_module
from places import TESTS
from ranks import answered

from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.ir import Mesh
from shardwright.ir.matmul import Matmul

pytest.importorskip("jax")

EVEN = {2: (4, 8, 12), 3: (6, 12, 18)}
"""Extents of i, j and k that all shardings on 2 by so many devices split evenly."""

UNEVEN = ((7, 13, 5), (3, 7, 11), (2, 5, 1))
"""Of the last two some shards are empty."""

DTYPES = {1: "float32", 2: "int32"}
"""By the number of processes: floats are such that their sums are exact."""

PARTS = 12


def parts(number: int) -> list[Any]:
    """Slices of all matmuls, with which of two next to each other is uneven: a sample of the long
    sweep, which has one number of two, and all."""
    found = [pytest.param(number, slice(number, None, 45), marks=pytest.mark.slow, id="sample")]
    for uneven, part in itertools.product(range(2), range(PARTS)):
        taken, name = slice(part, None, PARTS), f"uneven{uneven}-part{part}"
        found.append(pytest.param(uneven, taken, marks=pytest.mark.exhaustive, id=name))
    return found


@pytest.mark.parametrize("y", [2, 3])
@pytest.mark.parametrize(("uneven", "part"), parts(1))
def test_every_matmul_of_matrices(y: int, uneven: int, part: slice, tmp_path: Path) -> None:
    said_ok(1, y, uneven, part, tmp_path)


@pytest.mark.parametrize("y", [2, 3])
@pytest.mark.parametrize(("uneven", "part"), parts(0))
def test_every_matmul_of_matrices_in_two_processes(
    y: int, uneven: int, part: slice, tmp_path: Path
) -> None:
    said_ok(2, y, uneven, part, tmp_path)


FAULTS = (
    ("jnp.matmul(a, b", "jnp.matmul(2 * a, b"),
    ("without_padding(a, b, 13 -", "without_padding(a, b, 14 -"),
    ("def out_box(position):", "def out_box(position):\n    position += 1"),
)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_planted_faults_are_found(processes: int, tmp_path: Path) -> None:
    """Padding holds what no sum may have: what is poisoned is seen where it is read."""
    mesh = Mesh({"x": 2, "y": 2})
    sides = ((6, 13), "P('x', 'y')"), ((13, 6), "P('y')"), "P('x')"
    plan = plan_matmul(Matmul(DTYPES[processes], *sides, mesh=mesh), listed=0)
    cases = [write_module(plan, f"m{number}", tmp_path / "generated") for number in range(4)]
    for case, (right, wrong) in zip(cases, FAULTS, strict=False):
        text = case.module.read_text()
        assert right in text, right
        case.module.write_text(text.replace(right, wrong))
    for answers in answered(TESTS / "matmul_rank.py", processes, cases, tmp_path, mesh.size):
        said = [each.partition(" ")[0] for each in answers]
        assert said == ["device", "device", "MismatchError:", "ok"], answers


def said_ok(processes: int, y: int, uneven: int, part: slice, folder: Path) -> None:
    """Fail where a process says that a product is wrong."""
    cases = []
    for number, matmul in list(enumerate(matmuls(y, uneven, DTYPES[processes])))[part]:
        plan = plan_matmul(matmul, listed=0)
        cases.append(write_module(plan, f"m{number}", folder / "generated"))
    assert len(cases) > 25
    said = answered(TESTS / "matmul_rank.py", processes, cases, folder, 2 * y)
    wrong = {
        (case.name, case.texts, case.shapes, answer)
        for answers in said
        for case, answer in zip(cases, answers, strict=True)
        if answer != "ok"
    }
    assert wrong == set()


def matmuls(y: int, uneven: int, dtype: str) -> Iterator[Matmul]:
    """Yield a matmul of every triple of shardings on 2 by y devices; of two next to each other one
    is uneven, the first (0) or the second (1)."""
    mesh = Mesh({"x": 2, "y": y})
    every = itertools.product(matrix_shardings(mesh.names), repeat=3)
    for number, (lhs, rhs, out) in enumerate(every):
        is_uneven = number % 2 == uneven
        i, j, k = UNEVEN[number // 2 % len(UNEVEN)] if is_uneven else EVEN[y]
        yield Matmul(dtype, ((i, j), lhs), ((j, k), rhs), out, mesh=mesh)
