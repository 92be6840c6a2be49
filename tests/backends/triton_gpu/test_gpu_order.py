"""The order of what ranks do: calls in a row by every way that tiles can go, and planted faults,
each of which leaves two uses of the same bytes unordered, whoever comes first by luck."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cases import describe, random_reshard
from every_feature import EVERY
from gpu_cases import CASES, make
from test_sums_over_gloo import planted

from shardwright.codegen.checks.case import Case
from shardwright.codegen.checks.compare import MismatchError
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.emit.modules import parts
from shardwright.ir import Mesh, Reshard

pytest.importorskip("torch")
pytest.importorskip("triton")

from shardwright.codegen.backends.triton_gpu.verify.calls import (
    WAYS,
    check_calls,
    check_way,
)
from shardwright.codegen.backends.triton_gpu.verify.lanes import Lane, Lanes, Meet
from shardwright.codegen.backends.triton_gpu.verify.values import Values

TURNED = make({"x": 3}, (6, 7), '[{"x"}, {}]', '[{}, {"x"}]')
# Sent where it is, and received where it belongs.
IN_PLACE = make({"x": 2}, (8,), '[{"x"}]', '[{"x"}]', Mesh({"x": 2}, [1, 0]))
BACK = make({"x": 3}, (6, 7), '[{}, {"x"}]', '[{"x"}, {}]')  # received in a buffer
SUMMED = make({"x": 4}, (6, 5), '[{}, {}], unreduced={"x"}', "[{}, {}]")
RESHARDS = {
    "turned": TURNED,
    "in place": IN_PLACE,
    "apart": make({"x": 2}, (8, 4), '[{"x"}, {}]', '[{}, {"t"}]', Mesh({"t": 3}, [1, 2, 3])),
    "summed": SUMMED,
    "terms of which some are empty": make(
        {"x": 2}, (4,), '[{"x"}]', '[{}], unreduced={"x"}', dtype="int32"
    ),
    "few rows": make({"x": 4}, (3, 2), '[{"x"}, {}]', '[{}, {"x"}]', dtype="int8"),
    "uneven": CASES["uneven"],
}


def module_of(reshard: Reshard, folder: Path, edits: dict[str, str] | None = None) -> Any:
    """An emitted module, with words in the place of others."""
    made = parts(
        plan(reshard, "direct"),
        "triton_gpu",
        "shardwright emit",
        single_file=True,
        features=EVERY,
    )
    path = folder / "case" / "triton_gpu.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(planted(edits or {})(made[0].text))
    return load(path)


def values_of(reshard: Reshard) -> Values:
    """What is moved."""
    return Values.of(Case.of(reshard, "case", "triton_gpu", Path()))


@pytest.mark.parametrize("name", RESHARDS)
def test_calls_in_a_row(name: str, tmp_path: Path) -> None:
    reshard = RESHARDS[name]
    check_calls(module_of(reshard, tmp_path), values_of(reshard), noted=True, interpreted=False)


@pytest.mark.parametrize("seed", range(4))
def test_random(seed: int, tmp_path: Path) -> None:
    reshard = random_reshard(seed)
    try:
        check_calls(module_of(reshard, tmp_path), values_of(reshard), noted=True, interpreted=False)
    except MismatchError as error:
        raise AssertionError(describe(reshard)) from error


MEET = "            place.meet(number)\n"
PULL = "            if pull is not None:\n                pull(outs)\n"
WAITS = "                for work in works:\n                    work.wait()\n"
START = "            side.wait_stream(torch.cuda.current_stream(home))\n"
FINISH = "                self._finish()\n"
EVENT = "                self._event = side.record_event()\n"
WAIT_EVENT = "current.wait_event(self._event)"
LATER, PUSHED = "pulled, waited for later", "pushed or pulled, waited for later"

FAULTS: dict[str, tuple[str, Reshard, dict[str, str], str]] = {
    "no barrier before pulling": (
        "pulled",
        TURNED,
        {MEET + "            yield\n" + PULL: "            yield\n" + PULL},
        "call 0 of rank 0 reads symmetric memory of rank 1, which was never written",
    ),
    "no barrier after pulling": (
        "pulled",
        TURNED,
        {PULL + MEET: PULL},
        "call 0 of rank 0 reads symmetric memory of rank 2 without waiting for what "
        "call 1 of rank 2 writes there",
    ),
    "no barrier before terms are pulled": (
        "pulled",
        SUMMED,
        {MEET + "            yield\n" + PULL: "            yield\n" + PULL},
        "call 0 of rank 0 reads symmetric memory of rank 1, which was never written",
    ),
    "no barrier after terms are pulled": (
        "pulled",
        SUMMED,
        {PULL + MEET: PULL},
        "without waiting for what call 1 of rank",
    ),
    "no barrier after pulling from where they are": (
        "pulled from where they are",
        TURNED,
        {PULL + MEET: PULL},
        "the caller of rank 2 before call 1 overwrites symmetric memory of rank 2 without waiting "
        "for what call 0 of rank 0 reads there",
    ),
    "a stream that does not wait for the caller": (
        LATER,
        TURNED,
        {START: ""},
        "call 0 of rank 0 reads the source shard of rank 0 without waiting for what "
        "the caller of rank 0 before call 0 writes there",
    ),
    "a caller who does not wait for the stream": (
        LATER,
        TURNED,
        {WAIT_EVENT: "pass"},
        "the caller of rank 0 after call 0 reads the result of rank 0, which was never written",
    ),
    "an end before its start": (
        LATER,
        TURNED,
        {FINISH + EVENT: EVENT + FINISH},
        "the caller of rank 0 after call 0 reads the result of rank 0, which was never written",
    ),
    "two calls at once": (
        "exchanged by CPUs, waited for later",
        TURNED,
        {"                under_way.wait()\n": "                pass\n"},
        "reads memory of rank 0 without waiting for what call 1 of rank 0 writes there",
    ),
    "pushed before others expect it": (
        "pushed",
        TURNED,
        {"place.meet(number)  # no rank still reads the old results": "pass"},
        "the caller of rank 0 after call 0 reads the result of rank 0 without waiting for what "
        "call 1 of rank 2 writes there",
    ),
    "read before others have pushed": (
        PUSHED,
        TURNED,
        {"place.meet(number)  # all pushed tiles have arrived": "pass"},
        "the caller of rank 2 after call 0 reads the result of rank 2 without waiting for what "
        "call 0 of rank 0 writes there",
    ),
    "unpacked before it has come": (
        "exchanged",
        BACK,
        {WAITS: ""},
        "call 0 of rank 0 reads memory of rank 0, which was never written",
    ),
    "unpacked before it has come in one": (
        "exchanged in one",
        BACK,
        {WAITS: ""},
        "call 0 of rank 0 reads memory of rank 0, which was never written",
    ),
    "received where it belongs, and not waited for": (
        "exchanged by CPUs",
        IN_PLACE,
        {WAITS: ""},
        "ranks of the group are in different calls",
    ),
    "written by the caller before it has left": (
        "exchanged by CPUs",
        IN_PLACE,
        {WAITS: WAITS.replace("works:", "works[:1]:")},
        "ranks of the group are in different calls",
    ),
    "terms reduced before they have come": (
        "exchanged",
        SUMMED,
        {WAITS: ""},
        "which was never written",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults(fault: str, tmp_path: Path) -> None:
    way, reshard, edits, said = FAULTS[fault]
    with pytest.raises(MismatchError) as caught:
        check_way(module_of(reshard, tmp_path, edits), values_of(reshard), WAYS[way])
    assert said in str(caught.value)


def test_a_barrier_that_not_all_come_to() -> None:
    lanes = [Lane(), Lane()]
    lanes[1].add(Meet("a barrier", 2), "call 0 of rank 1")
    with pytest.raises(MismatchError) as caught:
        Lanes(lanes, []).check()
    assert str(caught.value) == "call 0 of rank 1 waits for a signal that never comes (Meet)"
