"""The XLA module among real processes: two and four under `jax.distributed`, against the oracle."""

from __future__ import annotations

import dataclasses
import itertools
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from cases import describe
from matmuls import matrix_shardings, write_module
from places import TESTS
from sweeps import swept

from shardwright.codegen.backends.jax_xla import context as jax_xla
from shardwright.codegen.backends.jax_xla.collectives import Collectives
from shardwright.codegen.backends.jax_xla.groups import Groups
from shardwright.codegen.backends.jax_xla.rounds import Rounds
from shardwright.codegen.emit.modules import parts
from shardwright.codegen.planner import plan
from shardwright.codegen.planner.matmul.plan import plan_matmul
from shardwright.codegen.verify import Case
from shardwright.codegen.verify.matmul_case import MatmulCase
from shardwright.ir import Mesh, Reshard
from shardwright.ir.matmul import Matmul

pytest.importorskip("jax")

RANK = TESTS / "jax_rank.py"
DEVICES = 8


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


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes(processes: int, tmp_path: Path) -> None:
    """Values, gradients and padding of every way in which boxes travel; three devices idle last."""
    cases = [written(reshard, tmp_path / f"case{n}") for n, (_, reshard) in enumerate(RESHARDS)]
    for how, reshard in RESHARDS:
        assert isinstance(jax_xla.how_of(plan(reshard)), how), describe(reshard)
    for rank, answers in enumerate(answered(processes, cases, tmp_path)):
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

SIZES = ((8, 8, 8), (4, 12, 8), (7, 13, 5), (2, 1, 3), (6, 6, 12))


def test_matmuls_in_two_processes(tmp_path: Path) -> None:
    """Integers, bit by bit; evenly split and not."""
    cases = []
    for number, (lhs, rhs, out, loop) in enumerate(MATMULS):
        i, j, k = (8, 16, 8) if loop != "never" else (9, 13, 6)
        matmul = Matmul("int32", ((i, j), lhs), ((j, k), rhs), out, mesh=EIGHT)
        plan_made = plan_matmul(matmul, loop=loop, listed=0)
        cases.append(write_module(plan_made, f"m{number}", tmp_path / "generated"))
    for answers in answered(2, cases, tmp_path, TESTS / "matmul_rank.py"):
        assert answers == ["ok"] * len(cases)


@pytest.mark.parametrize("y", [2, 3])
@pytest.mark.parametrize("part", swept(range(16), 16))
def test_every_matmul_of_matrices_in_two_processes(y: int, part: int, tmp_path: Path) -> None:
    """All shardings of two matrices and their product, of even and of uneven sizes."""
    answers = said_of_matmuls(Mesh({"x": 2, "y": y}), part, 16, tmp_path)
    assert len(answers[0]) > 80
    assert answers == [["ok"] * len(answers[0])] * 2


def said_of_matmuls(
    mesh: Mesh, part: int, parts: int, folder: Path, processes: int = 2
) -> list[list[str]]:
    """What processes say of a part of all matmuls of matrices on a mesh."""
    every = itertools.product(matrix_shardings(mesh.names), repeat=3)
    cases = []
    for number, (lhs, rhs, out) in itertools.islice(enumerate(every), part, None, parts):
        i, j, k = SIZES[number % len(SIZES)]
        matmul = Matmul("int32", ((i, j), lhs), ((j, k), rhs), out, mesh=mesh)
        made = plan_matmul(matmul, listed=0)
        cases.append(write_module(made, f"m{number}", folder / "generated"))
    return answered(processes, cases, folder, TESTS / "matmul_rank.py", mesh.size)


def written(reshard: Reshard, folder: Path) -> Case:
    """The modules of a reshard, on disk, as what is asked of the processes."""
    folder.mkdir()
    emitted = parts(plan(reshard), "jax_xla", "shardwright emit", gradient=True, single_file=True)
    for part in emitted:
        (folder / part.file).write_text(part.text)
    case = Case.of(reshard, folder.name, "jax_xla", folder / "jax_xla.py")
    return dataclasses.replace(case, derivative=len(emitted) > 1)


def answered(
    processes: int,
    cases: Sequence[Case | MatmulCase],
    folder: Path,
    script: Path = RANK,
    devices: int = DEVICES,
) -> list[list[str]]:
    """What every process says of every case; devices are shared out evenly."""
    asked = folder / "cases.jsonl"
    asked.write_text("".join(f"{case.to_json()}\n" for case in cases))
    words = [str(processes), str(devices // processes), str(free_port())]
    logs = [folder / f"{rank}.log" for rank in range(processes)]
    started = []
    for rank, log in enumerate(logs):
        with asked.open() as lines, log.open("w") as printed:
            command = [sys.executable, str(script), str(rank), *words]
            run = subprocess.Popen(
                command, stdin=lines, stdout=subprocess.PIPE, stderr=printed, text=True
            )
            started.append(run)
    try:
        answers = [run.communicate(timeout=500)[0].splitlines() for run in started]
    finally:
        for run in started:
            run.kill()
    said = "\n".join(log.read_text()[-2000:] for log in logs)
    assert [run.returncode for run in started] == [0] * processes, said
    return answers


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
        return port
