"""Triton matmuls whose blocks TMA copies: where it may, with what it would copy too much of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import running
from gloo_group import multiplied
from matmuls import write_module

import shardwright as sw
from shardwright.codegen.backends.triton_gpu.matmul.kernel import MatmulKernels
from shardwright.codegen.checks.load import load
from shardwright.codegen.checks.matmul_case import MatmulCase
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.codegen.operations.verify.pool import Runner

torch = pytest.importorskip("torch")

RING = sw.Mesh({"x": 4})
ROWS = '[{"x"}, {}]', '[{}, {"x"}]', '[{}, {"x"}]'
ALONG = '[{}, {"x"}]', '[{}, {"x"}]', '[{}, {"x"}]'
SUMS = '[{}, {"x"}]', '[{"x"}, {}]', '[{"x"}, {}]'
BATCH = '[{"x"}, {}, {}]', "[{}, {}, {}]", "[{}, {}, {}]"
KINDS = {
    "whole blocks": ("bfloat16", (64, 32, 64), ROWS, True),
    "columns and j end with the operands": ("float16", (64, 24, 96), ROWS, True),
    "rows end with the operand": ("bfloat16", (40, 64, 64), ALONG, True),
    "sums leave": ("bfloat16", (64, 64, 40), SUMS, True),
    "a batch of whole blocks": ("float16", (8, 16, 32, 16), BATCH, True),
    # A block would reach into what has not come, or is another's.
    "rows end within the operand": ("bfloat16", (72, 32, 64), ROWS, False),
    "parts of j end within the operand": ("bfloat16", (16, 96, 64), ALONG, False),
    "j ends, and another index of the batch begins": ("float16", (8, 16, 24, 16), BATCH, False),
    # Rows are not multiples of 16 bytes apart, or elements have another size.
    "rows of 40 bytes": ("bfloat16", (64, 20, 64), ROWS, False),
    "eight bits": ("int8", (64, 32, 64), ROWS, False),
    "exact products": ("float32", (64, 32, 64), ROWS, False),
}
"""Type, extents of the batch, i, j and k, shardings, and whether TMA may copy blocks."""

QUICK = "sums leave", "rows end within the operand"
"""Those that are tried by default."""

FAULTS = {
    "rows end within the operand": (
        "reads the operands of device 0 without waiting for what pull of device 0 writes"
    ),
    "parts of j end within the operand": "result at (0, 0): got",
    "rows of 40 bytes": "16-byte aligned",
}
"""Where TMA would copy what it must not, and what is then said."""


@pytest.fixture
def runner() -> Runner:
    return running.runner("triton_gpu")


def written(kind: str, root: Path) -> MatmulCase:
    dtype, (*batch, i, j, k), (lhs, rhs, out), _ = KINDS[kind]
    given = sw.Matmul(dtype, ((*batch, i, j), lhs), ((*batch, j, k), rhs), out, mesh=RING)
    return write_module(plan_matmul(given, listed=0), "m", root, backend="triton_gpu")


def member_of(case: MatmulCase) -> Any:
    """Return the first device of a module, that nothing is launched for."""
    from shardwright.codegen.backends.triton_gpu.compile.matmul import described

    return described(load(case.module)._HOST)


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind in QUICK else pytest.mark.slow) for kind in KINDS],
)
def test_where_tma_copies(kind: str, runner: Runner, tmp_path: Path) -> None:
    """Right with descriptors and with pointers, and nothing is read that was not waited for."""
    case = written(kind, tmp_path)
    assert member_of(case).described == KINDS[kind][-1]
    report = runner.run(case)
    assert report.verdict == "ok", report.detail
    assert {"values", "reads in bounds", "order"} <= set(report.checks)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAULTS)
def test_blocks_that_tma_must_not_copy_are_found(
    kind: str, runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MatmulKernels, "described", True)
    report = runner.run(written(kind, tmp_path))
    assert report.verdict == "failed"
    assert FAULTS[kind] in report.detail


def test_operands_that_begin_elsewhere_are_loaded_through_pointers(tmp_path: Path) -> None:
    member = member_of(written("whole blocks", tmp_path))
    memory = torch.empty(64 * 64 + 1, dtype=torch.bfloat16)
    given = member._operands(memory[:-1], memory[:-1])
    assert (given["TMA"], given["a"].block_shape) == (True, [16, 32])
    given = member._operands(memory[1:], memory[:-1])
    assert (given["TMA"], given["a"].data_ptr()) == (False, memory.data_ptr() + 2)


@pytest.mark.slow
def test_descriptors_in_processes(tmp_path: Path) -> None:
    """Several calls in a row, to each of which another process comes late."""
    cases = [written("columns and j end with the operands", tmp_path)]
    for answers in multiplied(cases, 4, tmp_path):
        assert answers == ["ok"]
