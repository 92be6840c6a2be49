"""Matmuls whose parts travel while devices multiply, for tests of their kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from matmuls import write_module

import shardwright as sw
from shardwright.codegen.backends.pallas_tpu.matmul.blocks import (
    BlockSizes,
    Extents,
    LocalProduct,
)
from shardwright.codegen.checks.matmul_case import MatmulCase
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.ir.matmul_plan import MatmulPlan

RING = sw.Mesh({"i": 4})
ROWS, COLUMNS, WHOLE = '[{"i"}, {}]', '[{}, {"i"}]', "[{}, {}]"


def gathers(dtype: str, extents: tuple[int, int, int]) -> sw.Matmul:
    """A matmul whose lhs is gathered along i."""
    i, j, k = extents
    return sw.Matmul(dtype, ((i, j), ROWS), ((j, k), WHOLE), WHOLE, mesh=RING)


def scatters(dtype: str, extents: tuple[int, int, int]) -> sw.Matmul:
    """A matmul whose result is scattered along i."""
    i, j, k = extents
    return sw.Matmul(dtype, ((i, j), COLUMNS), ((j, k), ROWS), ROWS, mesh=RING)


def along_j(keeps: bool, root: Path) -> MatmulCase:
    """A module whose kernel takes parts along j, in four blocks of the result, and `keeps` all
    sums in VMEM or none."""
    sides = ((32, 256), COLUMNS), ((256, 256), WHOLE)
    plan = plan_matmul(sw.Matmul("bfloat16", *sides, WHOLE, mesh=RING), loop="both", listed=0)
    assert plan.chosen.loop is not None
    with blocked((1, 16, 128, 128), keeps=keeps):
        case = write_module(plan, "m", root, backend="pallas_tpu")
    text = case.module.read_text()
    assert 'travels="a",\n    factor="j",' in text
    assert ("    terms,\n" in text) != keeps
    return case


@contextmanager
def blocked(sizes: Extents, **settings: bool) -> Iterator[None]:
    """Have kernels that are emitted inside take blocks of at most these sizes; `settings`: those of
    `BlockSizes`."""
    right = LocalProduct.blocks

    def blocks(product: LocalProduct, vmem: int) -> BlockSizes:
        found = right(product, vmem)
        batch, i, j, k = map(min, zip(found.sizes, sizes, strict=True))
        return replace(found, sizes=(batch, i, j, k), **settings)

    with patch.object(LocalProduct, "blocks", blocks):
        yield


def of_several_blocks() -> dict[str, MatmulPlan]:
    """Plans of a gather and of a scatter whose parts are several blocks each."""
    found = {
        "gather": plan_matmul(gathers("float32", (4 * 2 * 600, 4800, 10)), loop="both", listed=0),
        "scatter": plan_matmul(scatters("float32", (64, 8800, 3400)), loop="both", listed=0),
    }
    loops = {kind: plan.chosen.loop for kind, plan in found.items()}
    assert {kind: loop and loop.side for kind, loop in loops.items()} == {
        "gather": "lhs",
        "scatter": "out",
    }
    return found
