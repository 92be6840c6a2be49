"""Ranks of which one fails, has its memory somewhere else, or has nothing to send."""

from __future__ import annotations

from pathlib import Path

import pytest
from gloo_group import run_group
from gpu_cases import make
from matmuls import write_module
from test_distributed import check_exchange
from test_gpu_processes import sides, written

from shardwright.codegen.backends.triton_gpu.phases import exchanges_of
from shardwright.codegen.moves import plan
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.ir import Mesh
from shardwright.ir.matmul import Matmul

pytest.importorskip("torch")
pytest.importorskip("triton")

TWO = make({"x": 2}, (4,), '[{"x"}]', "[{}]")


def multiplied(folder: Path) -> str:
    """A matmul of two ranks, on disk."""
    split = '[{"x"}, {}]', '[{}, {"x"}]', '[{}, {"x"}]'
    both = zip(((8, 6), (6, 4)), split[:2], strict=True)
    matmul = Matmul("float32", *both, split[2], mesh=Mesh({"x": 2}))
    made = write_module(plan_matmul(matmul, listed=0), "m", folder, backend="triton_gpu")
    return str(made.module)


def test_memory_of_matmuls_begins_elsewhere_on_every_rank(tmp_path: Path) -> None:
    case = {"task": "gloo_faults:memory_of_matmuls", "module": multiplied(tmp_path)}
    for lines in run_group(2, [case | {"folder": str(tmp_path)}], tmp_path):
        assert lines[0]["found"] == [0, 1]


def test_whatever_one_rank_raises_is_an_error_on_all(tmp_path: Path) -> None:
    case = {"task": "gloo_faults:unexpected", "module": written(TWO, tmp_path / "one")}
    case |= {"matmul": multiplied(tmp_path / "two"), "folder": str(tmp_path)}
    why = "rank 1: OddError: the disk is full"
    case |= {"shards": sides(TWO)[0]}
    ranks = run_group(2, [case], tmp_path, interpreted=True)
    for rank, (found,) in enumerate(ranks):
        assert found["found"] == {
            "a shard": f"ValueError: {why}",
            "no DTensor": "ValueError: rank 0: got Tensor, expected a DTensor; "
            "for the shard of this rank, call reshard",
            "an operand": f"ValueError: {why}",
            "a file": f"RuntimeError: {why}",
            "an agreement": f"ValueError: {why}",
            "a rendezvous": f"RuntimeError: {why}",
            "memory": f"RuntimeError: {why}",
        }
        assert found["result"] == sides(TWO)[1][rank]


PHASED = make(
    {"data": 3, "y": 2},
    (2, 2),
    '[{}, {"y"}], unreduced={"data"}',
    '[{"w"}, {}]',
    Mesh({"z": 2, "w": 2}, [6, 7, 2, 3]),
)


def test_ranks_with_nothing_in_the_second_phase(tmp_path: Path) -> None:
    assert len(exchanges_of(plan(PHASED, "direct"))) == 2
    check_exchange([PHASED], tmp_path)
