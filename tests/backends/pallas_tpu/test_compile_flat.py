"""The TPU compiler on flat tensors whose tiles are forwarded as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from lone import alone_in_form
from running import check

from shardwright.codegen.backends.pallas_tpu.strategy import candidates, grid_of
from shardwright.codegen.backends.pallas_tpu.terms import moved
from shardwright.codegen.checks.compiled.job import Job
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.compile import targets
from shardwright.codegen.operations.compile.pool import outcomes
from shardwright.ir import InputError, Mesh, Reshard
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.plan import Plan

TOPOLOGY = "v5e:2x4"
MESH = Mesh({"x": 4, "y": 2})


def flat(dtype: str, size: int, source: str = '[{"y", "x"}]', target: str = '[{"x", "y"}]') -> Plan:
    """Whole shards go to other devices, over devices between."""
    sides = MESH.sharding(source), MESH.sharding(target)
    return plan(Reshard((size,), dtype, *sides), "direct", topology=TOPOLOGY)


def errors(made: Plan, folder: Path) -> list[str]:
    """What the compiler says of the modules of a plan in the relayed form."""
    try:
        targets.require(targets.parse_targets([TOPOLOGY]), saving=False)
    except InputError as error:
        pytest.skip(" ".join(str(error).split()))
    itemsize, jobs = DTYPES[made.reshard.dtype], []
    for number, choice in enumerate(candidates(moved(made), itemsize, grid_of(made))):
        if choice.form.name == "relayed":
            path = folder / f"{number}.py"
            path.write_text(alone_in_form(made, choice))
            jobs.append(Job("module", "pallas_tpu", "pallas_tpu", str(path), TOPOLOGY))
    assert jobs, "no module in this form"
    return [outcome.error for outcome in outcomes(jobs, 300) if outcome.error]


@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param("bfloat16", marks=pytest.mark.slow),
        *(
            pytest.param(dtype, marks=pytest.mark.exhaustive)
            for dtype in ("int8", "float16", "float32")
        ),
    ],
)
def test_flat_tensors_are_forwarded(dtype: str, tmp_path: Path) -> None:
    """A slot's number was an index along a tiled dimension."""
    assert errors(flat(dtype, 65536), tmp_path) == []


@pytest.mark.slow
def test_flat_tensors_that_are_forwarded_arrive(tmp_path: Path) -> None:
    """Shards of half a tile of memory, which stand a tile apart in slots."""
    check("pallas_tpu", [flat("bfloat16", 8 * 2048)], tmp_path)


def test_flat_tiles_that_are_no_whole_tiles_of_memory_are_packed() -> None:
    made = flat("bfloat16", 8 * 1000)
    found = candidates(moved(made), DTYPES[made.reshard.dtype], grid_of(made))
    assert "relayed" not in {choice.form.name for choice in found}
