"""What modules have in common of a group: memory, tensors of the caller's, calls under way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from every_feature import EVERY
from gloo_group import run_group
from gpu_cases import make
from test_gpu_processes import sides, written
from test_sums_over_gloo import planted

from shardwright.codegen.checks.load import load
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.emit.modules import parts
from shardwright.ir import Mesh, Reshard

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

GATHER = make({"x": 2, "y": 2}, (6, 8), '[{"x"}, {"y"}]', '[{}, {"x"}]')
TURNED = make({"x": 4}, (8, 12), '[{"x"}, {}]', '[{}, {"x"}]')
LARGER = make({"x": 4}, (16, 12), '[{"x"}, {}]', '[{}, {"x"}]', dtype="float64")


def more(reshard: Reshard, number: int) -> dict[int, str]:
    """The target shards of float32 values that are larger by a number."""
    return {
        device: (np.frombuffer(bytes.fromhex(bits), np.float32) + np.float32(number))
        .tobytes()
        .hex()
        for device, bits in sides(reshard)[1].items()
    }


def test_modules_share_memory(tmp_path: Path) -> None:
    """One workspace, as large as the largest asks for; tensors of the caller's where they are, and
    errors on every rank for others; all of it goes with the group."""
    paths = [written(r, tmp_path, f"case{k}") for k, r in enumerate((GATHER, LARGER))]
    case = {"task": "sharing", "modules": paths, "folder": str(tmp_path)}
    case |= {"shards": sides(GATHER)[0], "others": sides(LARGER)[0]}
    wanted, others, next_ones = sides(GATHER)[1], sides(LARGER)[1], more(GATHER, 1)
    for rank, lines in enumerate(run_group(4, [case], tmp_path, interpreted=True)):
        found = lines[0]
        assert (found["one"], found["again"]) == (wanted[rank], wanted[rank])
        assert found["other"] == others[rank]
        assert found["made"] == 2
        assert found["in place"] == [wanted[rank], next_ones[rank]]
        assert found["kept"]
        assert found["different"].endswith(": timed out")
        assert found["strange"] == ("RuntimeError: rank 2: got a tensor outside symmetric memory")
        assert found["gone"] == [True, True]


def test_a_graph_reads_the_workspace_of_its_capture(tmp_path: Path) -> None:
    """Which stays, though a larger reshard has made another since; not if nothing keeps it."""
    cases = []
    for number, kept in enumerate((True, False)):
        folder = tmp_path / str(number)
        paths = [written(r, folder, f"case{k}") for k, r in enumerate((GATHER, LARGER))]
        support = folder / "bundles" / "_support" / "torch_peers.py"
        assert "keep(place)" in support.read_text()
        if not kept:
            support.write_text(support.read_text().replace("keep(place)", "pass"))
        case = {"task": "captured", "modules": paths, "folder": str(folder)}
        cases.append(case | {"shards": sides(GATHER)[0], "others": sides(LARGER)[0]})
    wanted = more(GATHER, 1)
    for rank, lines in enumerate(run_group(4, cases, tmp_path, interpreted=True)):
        expected = {"grown": True, "result": wanted[rank]}
        assert lines == [expected | {"kept": True}, expected | {"kept": False}]


PLANTED = {
    "none": {},
    "the own tile is read where it was not staged": {
        "each[me] = each[me] if whole else at": "each[me] = each[me]",
    },
    "less is staged than leaves": {
        "for box in [held] if whole else dict.fromkeys(leaving):":
        "for box in [held] if whole else [*dict.fromkeys(leaving)][1:]:",
    },
    "nothing is waited for": {
        "        if self._event is None:\n            self._finish()\n":
        "        if self._event is None:\n            self._result = self._steps = []\n",
    },
}  # fmt: skip


@pytest.mark.parametrize("by", ["symmetric", "exchange"])
@pytest.mark.parametrize("name", PLANTED)
def test_calls_that_are_waited_for_later(name: str, by: str, tmp_path: Path) -> None:
    """The second waits for the first; in an exchange own tiles move meanwhile. Faults are seen in
    the results."""
    if by == "exchange" and "stage" in name:
        pytest.skip("an exchange stages nothing")
    asked = {"single_file": True, "features": EVERY}
    text = parts(plan(TURNED), "triton_gpu", "shardwright emit", **asked)[0].text
    path = tmp_path / "case.py"
    path.write_text(planted(PLANTED[name])(text))
    case = {"task": "later", "module": str(path), "by": by, "folder": str(tmp_path)}
    wanted, next_ones = sides(TURNED)[1], more(TURNED, 1)
    ranks = []
    try:
        ranks = run_group(4, [case | {"shards": sides(TURNED)[0]}], tmp_path, interpreted=True)
    except AssertionError:
        assert name == "nothing is waited for"
    right = [
        lines[0]["results"] == [wanted[rank], next_ones[rank]] for rank, lines in enumerate(ranks)
    ]
    assert (bool(right) and all(right)) == (name == "none")
    if name == "none":
        for rank, lines in enumerate(ranks):
            before = lines[0]["before"]
            nothing = np.full(24, -1, np.float32).tobytes().hex()
            there = next_ones[rank] if by == "exchange" else nothing
            own = slice(48 * rank, 48 * rank + 48)  # digits of 2 x 3 elements
            assert before[own] == there[own]
            assert by == "exchange" or before == there
        said = "ValueError: a source shard requires a gradient, but this module has none: emit it"
        assert all(lines[0]["refused"].startswith(said) for lines in ranks)


class Stream:
    """A stream that knows what comes before what is on it."""

    def __init__(self, home: object = None) -> None:
        self.done: set[str] = set()
        self.device = home

    def wait_stream(self, other: Stream) -> None:
        self.done |= other.done

    def record_event(self) -> Any:
        return SimpleNamespace(done=set(self.done), device=self.device)

    def wait_event(self, event: Any) -> None:
        self.done |= event.done


def test_streams_of_a_call_that_is_waited_for_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU that is none: a call comes after what made its tensors, and before what waits."""
    current, on = Stream(), []

    @contextmanager
    def entered(stream: Stream) -> Iterator[None]:
        on.append(stream)
        yield
        on.pop()

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", entered)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda home: on[-1] if on else current)
    path = tmp_path / "case.py"
    path.write_text(
        parts(plan(GATHER), "triton_gpu", "c", single_file=True, features=EVERY)[0].text
    )
    module, group, used = load(path), Mesh({"x": 4}), []

    def steps() -> Iterator[None]:
        assert "made" in on[-1].done
        on[-1].done.add("pulled")
        yield
        return [result]

    read: list[Stream] = []
    result = SimpleNamespace(record_stream=read.append)
    current.done.add("made")
    given = [SimpleNamespace(record_stream=used.append)]
    work = module.Work(steps(), torch.device("cuda"), given, group, lambda outs: outs[0])
    assert "pulled" not in current.done
    assert module.shared(group).under_way is work
    assert work.wait() is result
    assert read == [current]
    assert "pulled" in current.done
    assert module.shared(group).under_way is None
    assert len(used) == 1
