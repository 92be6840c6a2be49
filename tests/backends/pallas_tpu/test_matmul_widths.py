"""Kernels of matmuls through the TPU compiler, with 64-bit types in JAX and without."""

from __future__ import annotations

from pathlib import Path

import pytest
from matmul_kernels import blocked
from matmuls import write_module

import shardwright as sw
from shardwright.codegen.checks.compiled.job import Job, What
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.codegen.operations.bundles.compile import compile_bundles
from shardwright.codegen.operations.compile import targets
from shardwright.codegen.operations.compile.pool import outcomes

TOPOLOGY = "v5e:2x2"
RING = sw.Mesh({"i": 4})
ROWS, COLUMNS, WHOLE = '[{"i"}, {}]', '[{}, {"i"}]', "[{}, {}]"
GATHER = sw.Matmul("bfloat16", ((256, 256), ROWS), ((256, 128), WHOLE), WHOLE, mesh=RING)
SCATTER = sw.Matmul("bfloat16", ((256, 512), COLUMNS), ((512, 128), ROWS), ROWS, mesh=RING)
ALONG_J = sw.Matmul("int8", ((32, 1024), COLUMNS), ((1024, 128), WHOLE), WHOLE, mesh=RING)
Case = tuple[str, sw.Matmul, str]
CASES: tuple[Case, ...] = (
    ("gather", GATHER, "one"),
    ("gather", GATHER, "both"),
    ("scatter", SCATTER, "one"),
    ("scatter", SCATTER, "both"),
    ("along_j", ALONG_J, "both"),
)


def skip_without_the_compiler() -> None:
    try:
        targets.require(targets.parse_targets([TOPOLOGY]), saving=False)
    except sw.InputError as error:
        pytest.skip(" ".join(str(error).split()))


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param((("scatter", SCATTER, "both"),), marks=pytest.mark.slow),
        pytest.param(CASES, marks=pytest.mark.exhaustive),
    ],
    ids=["one", "all"],
)
def test_matmul_kernels_compile_in_both_widths(cases: tuple[Case, ...], tmp_path: Path) -> None:
    """Parts that are gathered, scattered and added to one sum, one way round rings and both, in
    blocks of which one is all that a part has, and in many."""
    skip_without_the_compiler()
    jobs, said = [], []
    for name, matmul, loop in cases:
        plan = plan_matmul(matmul, TOPOLOGY, loop=loop, listed=0)
        assert plan.chosen.loop is not None
        case = write_module(plan, f"{name}_{loop}", tmp_path, backend="pallas_tpu")
        with blocked((1, 32, 128, 128)):
            few = write_module(plan, f"{name}_{loop}_small", tmp_path, backend="pallas_tpu")
        small = few.module
        assert "ring=_RING" in small.read_text()
        asked: tuple[What, ...] = ("matmul", "x64_matmul")
        for path in (case.module, small):
            # Of one matmul the whole blocks in one width, the small ones in the other.
            for what in asked if len(cases) > 1 else asked[path == small :][:1]:
                jobs.append(Job(what, "pallas_tpu", "pallas_tpu", str(path), TOPOLOGY))
                said.append(f"{name} {loop} {path.parent.name} {what}")
    done = zip(said, outcomes(jobs, 120), strict=True)
    failed = [f"{each}: {outcome.error}" for each, outcome in done if outcome.error]
    assert not failed, "\n".join(failed)


@pytest.mark.exhaustive
def test_a_matmul_that_compiles_in_one_width_only_fails(tmp_path: Path) -> None:
    skip_without_the_compiler()
    bundle = sw.emit(GATHER, ("pallas_tpu",), loop="both", topology=TOPOLOGY)
    bundle.write(tmp_path / "generated" / "a")
    path = tmp_path / "generated" / "a" / "pallas_tpu.py"
    text, right = path.read_text(), "    barrier = pltpu.get_barrier_semaphore()\n"
    assert text.count(right) == 1
    planted = "    import jax; assert not jax.config.jax_enable_x64, 'no room for 64 bits'\n"
    path.write_text(text.replace(right, f"{planted}{right}"))
    (report,) = compile_bundles(tmp_path / "generated" / "a", (TOPOLOGY,), xla=False)
    said = report.verdict, report.detail
    assert said == ("failed", "with jax_enable_x64: no room for 64 bits")
    assert report.code is not None
