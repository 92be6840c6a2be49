"""Calls are numbered: a rank that goes on after an error gives nobody tiles of another call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gloo_group import run_group
from test_gpu_calls import module_of
from test_gpu_exchange import WAYS, random_calls
from test_gpu_processes import written

from shardwright.codegen.moves import plan
from shardwright.ir import Reshard

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

OTHER = (
    "the ranks of the group are in different calls: an earlier call failed on some ranks, or the"
)


def beside_rank_1(reshard: Reshard) -> set[int]:
    """Rank 1 and the ranks that it sends tiles to, or has tiles of."""
    transfers = plan(reshard, "direct").transfers()
    pairs = zip(transfers.sender.tolist(), transfers.receiver.tolist(), strict=True)
    return {rank for pair in pairs if 1 in pair for rank in pair}


def test_a_rank_that_goes_on_after_an_error(tmp_path: Path) -> None:
    """It gets an error, and so do those that it exchanges with, whichever way tiles go, until all
    agree again. The others have what is theirs."""
    cases, expected = [], []
    for number, reshard in enumerate(WAYS.values()):
        given, wanted = random_calls(reshard, number)
        path = written(reshard, tmp_path, f"case{number}", gradient=False)
        cases.append({"task": "gloo_faults:counted", "module": path, "calls": given})
        expected.append((beside_rank_1(reshard), wanted))
    ranks = run_group(4, cases, tmp_path)
    assert any(len(others) < 4 for others, _ in expected)
    for number, (others, wanted) in enumerate(expected):
        for rank, lines in enumerate(ranks):
            found = lines[number]["results"]
            if rank == 1:
                assert found.pop(1).startswith("ValueError: source shard of device 1")
            right = [str(each.get(rank)) for each in wanted]
            first, second, third, *later = found
            assert [first, *later] == [right[0], right[2], right[0]]
            if rank not in others:
                assert (second, third) == (right[1], "nothing")
                continue
            said = f"RuntimeError: rank {rank} of 4, plan "
            assert all(each.startswith(said) and OTHER in each for each in (second, third))


def test_ranks_in_different_calls_of_symmetric_memory(tmp_path: Path) -> None:
    """They wait for each other in vain."""
    path = written(WAYS["received"], tmp_path, gradient=False)
    case = {"task": "gloo_faults:counted", "module": path, "symmetric": str(tmp_path)}
    given, wanted = random_calls(WAYS["received"], 0)
    for rank, lines in enumerate(run_group(4, [case | {"calls": given}], tmp_path)):
        first, *_, last = lines[0]["results"]
        assert first == wanted[0][rank]
        assert last.endswith(": timed out")


def test_a_gpu_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers are compared where they are: on a device without values the host sees none."""
    module = module_of(WAYS["packed"], tmp_path)
    wire = module._HOST.processes._wire(0, torch.device("cpu"))
    asserted: list[Any] = []
    monkeypatch.setattr(torch, "_assert_async", lambda *given: asserted.append(given))
    _, arrived = wire.buffers()
    wire.check(arrived.to("meta"), 7)
    ((all_right, said),) = asserted
    assert (tuple(all_right.shape), said.startswith(OTHER)) == ((), True)
