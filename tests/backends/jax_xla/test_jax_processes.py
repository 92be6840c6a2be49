"""The XLA module among real processes: two and four under `jax.distributed`, against the oracle."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from cases import describe
from matmuls import write_module
from places import TESTS
from ranks import answered

from shardwright.codegen.backends.jax_steps.blocks import Collectives
from shardwright.codegen.backends.jax_xla import context as jax_xla
from shardwright.codegen.backends.jax_xla.groups import Groups
from shardwright.codegen.backends.jax_xla.rounds import Rounds
from shardwright.codegen.moves import plan
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.codegen.operations.emit.modules import parts
from shardwright.codegen.operations.verify import Case
from shardwright.ir import Mesh, Reshard
from shardwright.ir.matmul import Matmul

pytest.importorskip("jax")

RANK = TESTS / "jax_rank.py"


def make(
    mesh: Mesh, shape: tuple[int, ...], source: str, target: str, *, to: Mesh | None = None,
    dtype: str = "float32",
) -> Reshard:  # fmt: skip
    return Reshard(shape, dtype, mesh.sharding(source), (to or mesh).sharding(target))


EIGHT, SIX = Mesh({"x": 2, "y": 4}), Mesh({"x": 2, "y": 3})
SHUFFLED = Mesh({"x": 2, "y": 4}, [5, 0, 3, 6, 1, 7, 2, 4])
# How the boxes travel, and a reshard of which they do.
RESHARDS = (
    (Collectives, make(EIGHT, (16, 8), '[{"x", "y"}, {}]', '[{"x"}, {"y"}]')),
    (Collectives, make(EIGHT, (16, 8), '[{"x", "y"}, {}]', '[{"x"}, {}]', dtype="bfloat16")),
    (Groups, make(EIGHT, (8, 8), '[{}, {"x", "y"}]', '[{"y"}, {}]')),
    (Rounds, make(EIGHT, (16, 8), '[{"x"}, {"y"}]', '[{"y"}, {"x"}]', dtype="int64")),
    (Rounds, make(SIX, (7, 11), '[{"x"}, {"y"}]', '[{"y", "x"}, {}]')),
    (Rounds, make(EIGHT, (13, 5), '[{"x"}, {}]', '[{}, {"y"}]', to=SHUFFLED)),
    (Rounds, make(Mesh({"x": 4}), (9, 4), '[{"x"}, {}]', '[{}, {"t"}]', to=Mesh({"t": 2}, [7, 2]))),
)


@pytest.mark.parametrize(
    "processes",
    [pytest.param(2, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.exhaustive)],
)
def test_processes(processes: int, tmp_path: Path) -> None:
    """Values, gradients and padding of every way in which boxes travel; three devices idle last."""
    cases = [written(reshard, tmp_path / f"case{n}") for n, (_, reshard) in enumerate(RESHARDS)]
    for how, reshard in RESHARDS:
        assert isinstance(jax_xla.how_of(plan(reshard)), how), describe(reshard)
    for rank, answers in enumerate(answered(RANK, processes, cases, tmp_path)):
        for (_, reshard), answer in zip(RESHARDS, answers, strict=True):
            assert answer == "ok", f"process {rank}: {describe(reshard)}"


MATMULS = (
    ("P('x')", "P(None, 'y')", "P('x', 'y')", "never"),
    ("P(None, 'y')", "P()", "P('x')", "never"),
    ("P('x', 'y')", "P('y')", "P('x', 'y')", "never"),
    ("P('y')", "P('y')", "P('y')", "one"),
    ("P('y')", "P(None, 'y')", "P('y', 'x')", "never"),
    ("P(None, 'y')", "P('y')", "P('y')", "both"),
)
"""All four cases, and loops."""


@pytest.mark.slow
def test_matmuls_in_two_processes(tmp_path: Path) -> None:
    """Integers, bit by bit; evenly split and not."""
    cases = []
    for number, (lhs, rhs, out, loop) in enumerate(MATMULS):
        i, j, k = (8, 16, 8) if loop != "never" else (9, 13, 6)
        matmul = Matmul("int32", ((i, j), lhs), ((j, k), rhs), out, mesh=EIGHT)
        plan_made = plan_matmul(matmul, loop=loop, listed=0)
        cases.append(write_module(plan_made, f"m{number}", tmp_path / "generated"))
    for answers in answered(TESTS / "matmul_rank.py", 2, cases, tmp_path):
        assert answers == ["ok"] * len(cases)


def written(reshard: Reshard, folder: Path) -> Case:
    """The modules of a reshard, on disk, as what is asked of the processes."""
    folder.mkdir()
    emitted = parts(plan(reshard), "jax_xla", "shardwright emit", gradient=True, single_file=True)
    for part in emitted:
        (folder / part.file).write_text(part.text)
    case = Case.of(reshard, folder.name, "jax_xla", folder / "jax_xla.py")
    return dataclasses.replace(case, derivative=len(emitted) > 1)
