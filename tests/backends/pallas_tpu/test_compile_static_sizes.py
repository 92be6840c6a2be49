"""The TPU compiler with 64-bit types on sizes that emission knows: Mosaic selects 32 bits only."""

from __future__ import annotations

from pathlib import Path

import pytest
from lone import alone_in_form
from matmul_kernels import RING, ROWS, WHOLE
from matmuls import write_module

import shardwright as sw
from shardwright.codegen.backends.pallas_tpu.strategy import candidates, grid_of
from shardwright.codegen.backends.pallas_tpu.terms import moved
from shardwright.codegen.checks.compiled.job import Job
from shardwright.codegen.moves import plan
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.codegen.operations.compile import targets
from shardwright.codegen.operations.compile.pool import outcomes
from shardwright.ir import InputError, Mesh, Reshard

TOPOLOGY = "v5e:2x4"


def slots(folder: Path) -> Path:
    """A module with slots of as many granules each: no axis splits dimension 0."""
    mesh = Mesh({"x": 2, "y": 3})
    sides = mesh.sharding('[{}, {"x"}]'), mesh.sharding('[{}, {"y"}]')
    made, path = plan(Reshard((45, 341), "bfloat16", *sides), "direct"), folder / "slots.py"
    found = candidates(moved(made), 2, grid_of(made))
    path.write_text(alone_in_form(made, next(c for c in found if c.form.name == "slots")))
    return path


def halves(folder: Path) -> Path:
    """A module of a matmul with halves of 32 and of 16 rows, which go round a ring both ways."""
    sides = ((4 * 48, 256), ROWS), ((256, 128), WHOLE)
    made = plan_matmul(sw.Matmul("bfloat16", *sides, WHOLE, mesh=RING), "v5e:2x2", loop="both")
    return write_module(made, "halves", folder, backend="pallas_tpu").module


@pytest.mark.slow
def test_sizes_that_emission_knows_compile_with_64_bits(tmp_path: Path) -> None:
    try:
        targets.require(targets.parse_targets([TOPOLOGY]), saving=False)
    except InputError as error:
        pytest.skip(" ".join(str(error).split()))
    jobs = [
        Job("x64", "pallas_tpu", "pallas_tpu", str(slots(tmp_path)), TOPOLOGY),
        Job("x64_matmul", "pallas_tpu", "pallas_tpu", str(halves(tmp_path)), TOPOLOGY),
    ]
    assert [outcome.error for outcome in outcomes(jobs, 120)] == ["", ""]
