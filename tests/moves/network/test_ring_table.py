"""The fourth seed's cost table, derived: what the model says of each row of it."""

from __future__ import annotations

import pytest

from shardwright.codegen.hardware.topology import Torus
from shardwright.codegen.moves.network.ring_table import RingCost, ring_costs

BANDWIDTH, LATENCY = 1e9, 1e-6
RATIO = {"all_gather": 1.0, "reduce_scatter": 1.0, "all_reduce": 2.0, "all_to_all": 0.25}


def costs(dims: tuple[int, ...], nbytes: float, *, wrap: bool = True) -> dict[tuple, RingCost]:
    torus = Torus(dims, (wrap,) * len(dims), BANDWIDTH, LATENCY)
    return {(cost.op, cost.axes): cost for cost in ring_costs(torus, nbytes)}


@pytest.mark.parametrize("op", RATIO)
@pytest.mark.parametrize("n", [4, 8, 16, 64])
def test_where_bandwidth_bounds(op: str, n: int) -> None:
    """bytes / (bidirectional bandwidth x axes), up to (N - 1)/N; the same for any N."""
    nbytes = 1e12
    cost = costs((n,), nbytes)[op, 1]
    assert cost.table == pytest.approx(RATIO[op] * nbytes / (2 * BANDWIDTH))
    part = 1.0 if op == "all_to_all" else (n - 1) / n
    assert cost.model == pytest.approx(cost.table * part, rel=1e-4)
    assert cost.bound_by == "bandwidth"


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter", "all_reduce"])
@pytest.mark.parametrize("dims", [(4, 4), (8, 4), (4, 4, 4)])
def test_more_axes_are_as_much_faster(op: str, dims: tuple[int, ...]) -> None:
    nbytes, devices = 1e12, 1
    for size in dims:
        devices *= size
    found = costs(dims, nbytes)
    cost = found[op, len(dims)]
    assert cost.table == pytest.approx(found[op, 1].table / len(dims))
    assert cost.model <= found[op, 1].model
    if len({*dims}) == 1:
        assert cost.model == pytest.approx(cost.table * (devices - 1) / devices, rel=1e-4)


@pytest.mark.parametrize("op", RATIO)
def test_where_latency_bounds(op: str) -> None:
    """Few bytes take as long as none, and longer among more devices."""
    few, more = (costs((n,), 64.0)[op, 1] for n in (8, 64))
    for cost in (few, more):
        assert cost.bound_by == "latency"
        assert cost.latency >= LATENCY
        assert cost.model == pytest.approx(cost.latency, rel=0.1)
        assert cost.table < cost.latency / 10
    assert more.latency > few.latency


def test_a_chain_takes_twice_as_long() -> None:
    ring, chain = (costs((8,), 1e12, wrap=wrap)["all_gather", 1] for wrap in (True, False))
    assert chain.model == pytest.approx(2 * ring.model, rel=1e-4)
    assert chain.table == ring.table
