"""What XLA's own collectives cost on a network: priced as the collectives of the basis are."""

from __future__ import annotations

import numpy as np
import pytest

from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.moves.basis.digits import Digits
from shardwright.codegen.moves.network.collectives import Prices
from shardwright.codegen.moves.network.links import Network
from shardwright.codegen.moves.xla import Collective
from shardwright.codegen.moves.xla_cost import digits_of, seconds_of

IDS = np.arange(8, dtype=np.int64)
NBYTES = 1 << 20


def network(topology: str) -> Network:
    return Network(topology_of(topology), 8)


@pytest.mark.parametrize(
    ("groups", "digits"),
    [
        ([[0, 1, 2, 3], [4, 5, 6, 7]], ((1, 4),)),
        ([[0, 4], [1, 5], [2, 6], [3, 7]], ((4, 2),)),
        ([[7, 5, 3, 1], [6, 4, 2, 0]], ((2, 4),)),
        ([[0, 1, 4, 5], [2, 3, 6, 7]], ((1, 2), (4, 2))),
        ([[0], [1], [2], [3], [4], [5], [6], [7]], None),
        ([[0, 3], [1, 2], [4, 7], [5, 6]], None),
        ([[0, 1, 2, 3, 4, 5], [6, 7]], None),
        ([[0, 1, 3], [2, 4, 5]], None),
    ],
)
def test_digits_of_groups(groups: list[list[int]], digits: Digits | None) -> None:
    assert digits_of(groups, 8) == digits


@pytest.mark.parametrize("topology", ["h100", "v5e:2x4", "v5p:2x2x2", "h100:2x4"])
def test_groups_of_digits_cost_what_the_basis_costs(topology: str) -> None:
    """HLO states the bytes of results: of 4 devices, those of an all-gather are 4 shards."""
    where, groups = network(topology), [[0, 1, 2, 3], [4, 5, 6, 7]]
    prices = Prices(where, IDS)
    expected = {
        "all-gather": prices.all_gather(((1, 4),), NBYTES / 4),
        "reduce-scatter": prices.reduce_scatter(((1, 4),), NBYTES * 4),
        "all-reduce": prices.all_reduce(((1, 4),), NBYTES),
        "all-to-all": prices.all_to_all(((1, 4),), NBYTES),
    }
    for op, seconds in expected.items():
        assert seconds_of([Collective(op, NBYTES, groups)], where, IDS) == seconds > 0, op
    moves = [Collective(op, NBYTES, groups) for op in expected]
    assert seconds_of(moves, where, IDS) == pytest.approx(sum(expected.values()))


def test_what_goes_from_one_to_another() -> None:
    """A permute lasts as long as its busiest link; what stays costs nothing; ids say where."""
    where = network("switch:8,bandwidth=1e9,latency=1e-6")
    message = 1e-6 + NBYTES / 1e9
    assert seconds_of([permute([[0, 1], [1, 0], [2, 2]])], where, IDS) == pytest.approx(message)
    assert seconds_of([permute([[0, 0], [2, 2]])], where, IDS) == 0
    far = network("h100:2x4")
    near = seconds_of([permute([[0, 1]])], far, IDS)
    assert seconds_of([permute([[0, 1]])], far, IDS[[0, 4, 2, 3, 1, 5, 6, 7]]) > near > 0


def test_groups_that_are_no_digits_send_to_each_other() -> None:
    where = network("switch:8,bandwidth=1e9,latency=1e-6")
    odd, even = [[0, 3], [1, 2], [4, 7], [5, 6]], [[0, 1], [2, 3], [4, 5], [6, 7]]
    for op in ("all-gather", "all-to-all", "reduce-scatter", "all-reduce"):
        seconds = [
            seconds_of([Collective(op, NBYTES, groups)], where, IDS) for groups in (odd, even)
        ]
        assert seconds[0] == pytest.approx(seconds[1], rel=0.01), op


def permute(pairs: list[list[int]]) -> Collective:
    return Collective("collective-permute", NBYTES, pairs)
