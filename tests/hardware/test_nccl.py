"""What collectives and pulls take on GPUs, against NCCL's table and what was measured."""

from __future__ import annotations

import numpy as np
import pytest

import shardwright as sw
from shardwright.codegen import registry
from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.moves.network.collectives import Prices
from shardwright.codegen.moves.network.links import Flows, Network
from shardwright.codegen.moves.network.timeline import cost_of
from shardwright.codegen.moves.plan import network_of

H100 = Network(topology_of("h100"), 8)
EVERY = ((1, 8),)


def table(nbytes: float, hops: int, received: float) -> float:
    """NCCL's own time: the least of LL, LL128 and Simple."""
    rows = ((6.6, 0.6, 141e3), (14.0, 1.9, 0.92 * 370e3), (8.4, 3.4, 370e3))
    return min(base + hops * hop + received * nbytes / rate for base, hop, rate in rows) / 1e6


@pytest.mark.parametrize("nbytes", [64.0, 2.0**20, 2.0**22, 2.0**30])
def test_collectives_take_what_nccls_table_says(nbytes: float) -> None:
    """A shard of so many bytes to all; of terms, and of an all-reduce, each part as large."""
    prices = Prices(H100, np.arange(8))
    assert prices.all_to_all(EVERY, 8 * nbytes) == pytest.approx(table(nbytes, 7, 7))
    gathered = prices.all_gather(EVERY, nbytes)
    assert 1 - 1e-9 <= gathered / table(nbytes, 3, 7) <= table(nbytes, 7, 7) / table(nbytes, 3, 7)
    assert prices.reduce_scatter(EVERY, 8 * nbytes) == gathered
    assert gathered < prices.all_reduce(EVERY, 8 * nbytes) < 2 * gathered
    ring = Flows(np.arange(8), np.roll(np.arange(8), 1), np.full(8, nbytes))
    assert H100.collective_seconds(H100.load(ring)) == pytest.approx(table(nbytes, 1, 1))


def test_large_transfers_reach_what_was_measured() -> None:
    prices = Prices(H100, np.arange(8))
    assert 7 * 2**30 / prices.all_gather(EVERY, 2.0**30) == pytest.approx(370e9, rel=0.01)


def test_a_pull_is_two_launches_and_two_barriers() -> None:
    mesh = sw.Mesh({"x": 8})
    sides = mesh.sharding('[{"x"}, {}]'), mesh.sharding('[{}, {"x"}]')
    plan = sw.plan(sw.Reshard((64, 64), "float32", *sides), "direct", topology="h100")
    cost = cost_of(registry.backend("triton_gpu").timeline(plan), network_of(plan.reshard, "h100"))
    assert [stage.seconds > 1.9e-6 for stage in cost.stages] == [True] * 4
    assert cost.seconds == pytest.approx(10e-6, rel=0.05)
