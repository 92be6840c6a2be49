"""Matmuls whose parts travel while devices multiply, for tests of their kernels."""

from __future__ import annotations

import re
from pathlib import Path

from matmuls import write_module

import shardwright as sw
from shardwright.codegen.planner.matmul.plan import plan_matmul
from shardwright.codegen.verify.matmul_case import MatmulCase
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
    case = write_module(plan, "m", root, backend="pallas_tpu")
    text = case.module.read_text()
    assert '"a",\n    "j",' in text
    text = re.sub(r"blocks=\(.*?\)", "blocks=(1, 16, 128, 128)", text)
    case.module.write_text(text.replace("keeps=True", f"keeps={keeps}"))
    return case


def of_several_blocks() -> dict[str, MatmulPlan]:
    """Plans of a gather and of a scatter whose parts are several blocks each."""
    found = {
        "gather": plan_matmul(gathers("float32", (4 * 2 * 600, 1100, 10)), loop="both", listed=0),
        "scatter": plan_matmul(scatters("float32", (64, 4400, 1300)), loop="both", listed=0),
    }
    loops = {kind: plan.chosen.loop for kind, plan in found.items()}
    assert {kind: loop and loop.side for kind, loop in loops.items()} == {
        "gather": "lhs",
        "scatter": "out",
    }
    return found
