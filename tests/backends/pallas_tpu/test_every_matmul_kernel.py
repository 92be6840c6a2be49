"""All shardings of two matrices and their product that lead to a kernel, on 2, 4 and 8 devices.

The events of all devices are read, without moving anything: which products every block of the
result is the sum of. Kernels are multiplied in TPU interpret mode too, each once of those that are
given the same: what differs between their modules are collectives of XLA around them. Every other
case is cut into blocks as small as can be. The long sweep takes a sample, of which it reads events.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matmul_kernels import blocked
from matmuls import matrix_shardings, write_module

import shardwright as sw
from shardwright.codegen.backends.pallas_tpu.matmul.kernel import MatmulRing
from shardwright.codegen.backends.pallas_tpu.matmul.lines import kernel_lines
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.codegen.operations.verify.pool import Runner
from shardwright.ir.matmul_plan import MatmulPlan

EXTENTS = ((48, 272, 48), (16, 32, 144), (64, 48, 16))
"""Of i, j and k: several parts of each, few of them as long as a tile of memory, and blocks that
end with them."""


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


def in_small_blocks(plan: MatmulPlan) -> AbstractContextManager[None]:
    """Have kernels take the smallest blocks that there are."""
    rows = 32 if plan.matmul.dtype == "int8" else 16
    return blocked((1, rows, 128, 128))


def kernel_of(plan: MatmulPlan) -> str:
    """A plan's kernel."""
    assert plan.chosen.loop is not None
    ring = MatmulRing.of(plan, plan.chosen.loop)
    return "\n".join(kernel_lines(ring, "RING", "AXES", 0))


def verdict(plan: MatmulPlan, name: str, root: Path, runner: Runner, **asked: bool) -> str:
    """What is wrong with a plan's module, "" if nothing; `execute`: whether it multiplies; `small`:
    whether in small blocks."""
    with in_small_blocks(plan) if asked["small"] else nullcontext():
        case = write_module(plan, name, root, backend="pallas_tpu")
    report = runner.run(replace(case, execute=asked["execute"]))
    if report.verdict == "ok" and "protocol" in report.checks:
        return ""
    return f"{plan.matmul}: {report.verdict} {report.checks}: {report.detail}"


def checked(found: Iterable[MatmulPlan], root: Path, *, execute: bool) -> Counter[Any]:
    """Return how often each side travels along each factor; every kernel is right."""
    sides, seen = Counter[Any](), set[str]()
    with Runner("pallas_tpu", 8) as runner:
        for number, plan in enumerate(found):
            assert plan.chosen.loop is not None
            kernel, small = kernel_of(plan), number % 2 > 0
            asked = {"small": small, "execute": execute and kernel not in seen}
            seen.add(kernel)
            assert not verdict(plan, f"m{number}", root, runner, **asked)
            sides[plan.chosen.loop.side, plan.chosen.loop.factor] += 1
    return sides


WAYS = ("one", "both")


@pytest.mark.parametrize("ways", WAYS)
@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.exhaustive
def test_every_sharding_along_one_axis(size: int, ways: str, tmp_path: Path) -> None:
    """Operands along i, j and k, the result along i and k."""
    sides = checked(plans({"x": size}, ways), tmp_path, execute=True)
    assert {side for side, _ in sides} == {"lhs", "rhs", "out"}
    assert len(sides) >= 5


@pytest.mark.parametrize("ways", WAYS)
@pytest.mark.parametrize("y", [2, 4])
@pytest.mark.exhaustive
def test_every_sharding_along_two_axes(y: int, ways: str, tmp_path: Path) -> None:
    sides = checked(plans({"x": 2, "y": y}, ways), tmp_path, execute=True)
    assert sides.total() > 1000


@pytest.mark.parametrize("ways", WAYS)
@pytest.mark.parametrize("y", [2])
@pytest.mark.slow
def test_some_shardings_along_two_axes(y: int, ways: str, tmp_path: Path) -> None:
    sides = checked(plans({"x": 2, "y": y}, ways, slice(7, None, 61)), tmp_path, execute=False)
    assert sides.total() > 5
