"""Sums by Triton modules among real processes: pairs of shardings, mixed features, faults.

All of it last ran whole on 2026-11-23, the exhaustive part in twenty minutes of a busy machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cases import describe, summed_pairs
from gloo_group import run_group
from gpu_cases import make
from mixed_sums import COUNT, MIXED, direct
from sums import OPERATORS, QUICK, pairs_with_terms, placed
from sweeps import sampled
from test_distributed import asked, check_exchange, check_exchanges, rounded

from shardwright.codegen.moves import plan
from shardwright.ir import Reshard
from shardwright.ir.dtypes import is_floating

PAIRS = summed_pairs({"x": 2, "y": 2, "z": 2}, (8, 4))
GROUPS = 16
"""Sets of eight processes, each for so large a part of the pairs."""


@pytest.mark.slow
def test_some_pairs_of_the_cube(tmp_path: Path) -> None:
    check_exchange(PAIRS[::202], tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", range(GROUPS))
def test_pairs_of_the_cube(number: int, tmp_path: Path) -> None:
    """Every sharding of a matrix that leaves an axis unreduced, to every one."""
    assert len(PAIRS) == 1617
    check_exchange(PAIRS[number::GROUPS], tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("operator", OPERATORS)
def test_all_pairs_with_new_terms(operator: str, tmp_path: Path) -> None:
    """Of shardings of a vector on a 2 x 2 mesh with any axes unreduced."""
    sides = [
        [replace(side, operator=operator) for side in (pair.source, pair.target)]
        for pair in pairs_with_terms()
    ]
    check_exchange([Reshard((6,), "int32", *both) for both in sides], tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(0, 400, 100))
def test_new_terms(first: int, tmp_path: Path) -> None:
    check_exchange(placed(range(first, first + 100)), tmp_path)


@pytest.mark.slow
def test_some_mixed(tmp_path: Path) -> None:
    check_exchanges([direct(number) for number in range(0, COUNT, 25)], tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(4))
def test_mixed(first: int, tmp_path: Path) -> None:
    check_exchanges([direct(number) for number in range(first, COUNT, 4)], tmp_path)


def rounds(reshard: Reshard) -> bool:
    """Whether sums are rounded, so that their order shows."""
    added = reshard.adds and reshard.source.operator == "sum" and not reshard.places
    return added and is_floating(reshard.dtype)


@pytest.mark.parametrize("count", sampled([3, 100], 3))
def test_sums_in_order(count: int, tmp_path: Path) -> None:
    """Of random floats, bit by bit: the order in which a module says that it adds."""
    plans = [direct(number) for number, each in enumerate(MIXED) if rounds(each)]
    assert len(plans) > 10
    check_exchanges(plans[:count], tmp_path, given=rounded)


REPLICATED = plan(
    make({"x": 2, "y": 4}, (6, 5), '[{"x"}, {}], unreduced={"y"}', "[{}, {}]"), "direct"
)
IN_TWO = plan(
    make({"x": 2, "y": 4}, (16, 9), '[{}, {}], unreduced={"x", "y"}', "[{}, {}]"),
    "direct",
    topology=QUICK,
)
ADDED = "                    total += term\n"
FAULTS = {
    "left_out": (REPLICATED, {"for term in others:": "for term in others[1:]:"}),
    "twice": (REPLICATED, {ADDED: 2 * ADDED}),
    "another_order_on_one_replica": (
        REPLICATED,
        {", unpacked)": ", unpacked.roll(int(torch.distributed.get_rank() == 1), 0))"},
    ),
    "an_exchange_left_out": (
        IN_TWO,
        {"self._then.call(parts, ": "self._then.call([0 * parts[0]], "},
    ),
}
"""By name: the plan, and words of its module with what stands there instead."""


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults(name: str, tmp_path: Path) -> None:
    """Random floats tell each of them, by their bits beside the oracle's: additions that torch
    makes, not the kernel."""
    made, edits = FAULTS[name]
    with pytest.raises(AssertionError, match=re.escape(describe(made.reshard))):
        check_exchanges([made], tmp_path, planted(edits), rounded)


def planted(edits: dict[str, str]) -> Callable[[str], str]:
    """What puts words in the place of others."""

    def plant(text: str) -> str:
        for words, instead in edits.items():
            assert words in text, "nothing is planted"
            text = text.replace(words, instead)
        return text

    return plant


def test_exact_numbers_do_not_tell_an_order(tmp_path: Path) -> None:
    """Which is what random ones are for."""
    _, edits = FAULTS["another_order_on_one_replica"]
    check_exchanges([REPLICATED], tmp_path, planted(edits))


FOUR = plan(make({"x": 4}, (6, 5), '[{}, {}], unreduced={"x"}', "[{}, {}]"), "direct")


@pytest.mark.slow
def test_memory_that_others_read(tmp_path: Path) -> None:
    """Terms lie in memory that all processes map: three calls in a row, while ranks are slow in
    their turn. A wait that is left out is found in `test_gpu_order`, whoever comes first."""
    case, wanted = asked(FOUR, tmp_path / "four.py")
    slow = {"task": "symmetric", "folder": str(tmp_path), "slow": 0.2, "late": 0.2, "idle": 1}
    for (found,) in run_group(4, [case | slow], tmp_path, interpreted=True):
        assert found["results"] == [wanted[found["device"]]] * 3
