"""All shardings of two matrices and their product that lead to a kernel, on 2, 4 and 8 devices.

Along one axis each is multiplied in TPU interpret mode. Along two, the events of all devices are
read, without moving anything: which products every block of the result is the sum of. The long
sweep takes a sample of these.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matmuls import matrix_shardings, write_module

import shardwright as sw
from shardwright.codegen.planner.matmul.plan import plan_matmul
from shardwright.codegen.verify.pool import Runner
from shardwright.ir.matmul_plan import MatmulPlan

EXTENTS = ((32, 256, 40), (16, 24, 128), (64, 40, 16))
"""Of i, j and k: several parts of each, few of them as long as a tile of memory."""

PARTS = 16


def plans(axes: dict[str, int], ways: str, part: slice = slice(None)) -> Iterator[MatmulPlan]:
    """Yield the plans of a part of all triples of shardings, of those that have such a loop."""
    mesh = sw.Mesh(axes)
    every = itertools.product(matrix_shardings(mesh.names), repeat=3)
    for number, (lhs, rhs, out) in list(enumerate(every))[part]:
        i, j, k = EXTENTS[number % len(EXTENTS)]
        dtype, wide = (("int8", "int32"), ("bfloat16", None))[number // 3 % 2]
        matmul = sw.Matmul(dtype, ((i, j), lhs), ((j, k), rhs), out, wide, mesh=mesh)
        try:
            yield plan_matmul(matmul, loop=ways, listed=0)
        except sw.InputError:  # nothing goes round a ring
            continue


def checked(found: list[MatmulPlan], root: Path, *, execute: bool) -> Counter[Any]:
    """Return how often each side travels along each factor; every kernel is right."""
    sides = Counter[Any]()
    with Runner("pallas_tpu", 8) as runner:
        for number, plan in enumerate(found):
            assert plan.chosen.loop is not None
            case = write_module(plan, f"m{number}", root, backend="pallas_tpu")
            report = runner.run(replace(case, execute=execute))
            assert report.verdict == "ok", f"{plan.matmul}: {report.detail}"
            assert "protocol" in report.checks
            sides[plan.chosen.loop.side, plan.chosen.loop.factor] += 1
    return sides


@pytest.mark.parametrize("ways", ["one", "both"])
@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.exhaustive
def test_every_sharding_along_one_axis(size: int, ways: str, tmp_path: Path) -> None:
    """Operands along i, j and k, the result along i and k."""
    sides = checked(list(plans({"x": size}, ways)), tmp_path, execute=True)
    assert {side for side, _ in sides} == {"lhs", "rhs", "out"}
    assert len(sides) >= 5


@pytest.mark.parametrize("ways", ["one", "both"])
@pytest.mark.parametrize(
    "part",
    [
        pytest.param(slice(7, None, 61), marks=pytest.mark.slow, id="sample"),
        *(
            pytest.param(slice(part, None, PARTS), marks=pytest.mark.exhaustive, id=f"{part}")
            for part in range(PARTS)
        ),
    ],
)
@pytest.mark.parametrize("y", [2, 4])
def test_every_sharding_along_two_axes(y: int, part: slice, ways: str, tmp_path: Path) -> None:
    found = list(plans({"x": 2, "y": y}, ways, part))
    assert len(found) > 5
    checked(found, tmp_path, execute=False)
