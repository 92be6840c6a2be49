"""Schedules, the balance of senders, and relabelling, each against an independent solver."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from cases import all_pairs, describe, random_reshard
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from strategies import exactly, message

from shardwright.codegen.moves import plan
from shardwright.codegen.moves.plan import network_of
from shardwright.codegen.moves.relabel import relabel
from shardwright.codegen.moves.rounds import Schedule, schedule
from shardwright.ir import Mesh, Reshard
from shardwright.ir.transfers import Transfers


def scheduled(reshard: Reshard, topology: str = "switch") -> tuple[Transfers, Schedule]:
    transfers = plan(reshard, "direct").transfers()
    return transfers, schedule(transfers, network_of(reshard, topology))


def check_rounds(transfers: Transfers, made: Schedule) -> None:
    """Every transfer has a round but local copies; no device sends or receives twice in one."""
    assert ((made.rounds < 0) == transfers.is_local).all()
    assert int(made.rounds.max(initial=-1)) < made.count
    for number in range(made.count):
        chosen = made.rounds == number
        assert chosen.any()
        for ends in (transfers.sender[chosen], transfers.receiver[chosen]):
            assert np.unique(ends).size == ends.size
    degrees = [
        int((ends[made.rounds >= 0] == device).sum())
        for ends in (transfers.sender, transfers.receiver)
        for device in np.unique(ends)
    ]
    assert made.least == max(degrees, default=0) <= made.count


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9))
def test_rounds_of_random_reshards(seed: int) -> None:
    """Between any meshes; and never more rounds than the busiest device has transfers."""
    transfers, made = scheduled(random_reshard(seed))
    check_rounds(transfers, made)
    assert made.count == made.least


@pytest.mark.parametrize("topology", ["switch:8", "torus:2x4", "hierarchical:2x4"])
def test_rotation_where_plans_are_regular(topology: str) -> None:
    """An all-to-all of 8 devices: seven rounds, in each of which all send over the same way."""
    mesh = Mesh({"x": 8})
    reshard = Reshard((8, 8), "int8", mesh.sharding('[{"x"}, {}]'), mesh.sharding('[{}, {"x"}]'))
    transfers, made = scheduled(reshard, topology)
    check_rounds(transfers, made)
    assert (made.kind, made.count) == ("rotation", 7)
    network = network_of(reshard, topology)
    for number in range(7):
        chosen = made.rounds == number
        ends = (network.topology.coordinates(e[chosen]) for e in (transfers.sender,
                                                                  transfers.receiver))  # fmt: skip
        start, stop = ends
        sizes = {"switch:8": (8,), "torus:2x4": (2, 4), "hierarchical:2x4": (2, 4)}[topology]
        assert len({tuple(d) for d in ((start - stop) % sizes).tolist()}) == 1


def test_colouring_where_they_are_not() -> None:
    """Six devices to four others: rotation would leave rounds half empty."""
    source, target = Mesh({"a": 6}), Mesh({"b": 4}, range(6, 10))
    reshard = Reshard((12,), "int8", source.sharding('[{"a"}]'), target.sharding('[{"b"}]'))
    transfers, made = scheduled(reshard, "switch:10")
    check_rounds(transfers, made)
    assert (made.kind, made.count) == ("colouring", 2)


def least_busiest(reshard: Reshard) -> float:
    """The least elements of the busiest sender over all ways to split every piece of a tensor that
    a device lacks among its holders: a linear program."""
    exchange = plan(reshard, "direct").exchange
    held, wanted = exchange.source.boxes(), exchange.target.boxes()
    senders = list(reshard.source.mesh.device_ids)
    needs, holders = [], []
    for position, device in enumerate(reshard.target.mesh.device_ids):
        own = held[senders.index(device)] if device in senders else None
        for shard in np.unique(held, axis=0):
            low = np.maximum(shard[:, 0], wanted[position][:, 0])
            high = np.minimum(shard[:, 1], wanted[position][:, 1])
            if (high > low).all() and not (own is not None and (own == shard).all()):
                needs.append(int(np.prod(high - low)))
                holders.append(np.flatnonzero((held == shard).all(axis=(1, 2))))
    if not needs:
        return 0.0
    pairs = [(need, int(holder)) for need, group in enumerate(holders) for holder in group]
    # Variables: what each holder sends for each need, then the load of the busiest.
    load = np.zeros((len(senders), len(pairs) + 1))
    served = np.zeros((len(needs), len(pairs) + 1))
    for column, (need, holder) in enumerate(pairs):
        load[holder, column], served[need, column] = 1, 1
    load[:, -1] = -1
    cost = np.zeros(len(pairs) + 1)
    cost[-1] = 1
    found = linprog(cost, A_ub=load, b_ub=np.zeros(len(senders)), A_eq=served, b_eq=needs)
    assert found.success
    return float(found.fun)


PAIRS = all_pairs({"x": 2, "y": 3}, (7, 5)) + all_pairs({"x": 2, "y": 2, "z": 2}, (8, 6))


@pytest.mark.parametrize("reshard", [*PAIRS[::31], *map(random_reshard, range(40))], ids=describe)
def test_the_bound_of_the_busiest_sender(reshard: Reshard) -> None:
    """`bound_sent_max` is what a linear program finds, rounded up to whole elements."""
    bound = plan(reshard, "direct").traffic.bound_sent_max / reshard.itemsize
    least = least_busiest(reshard)
    assert least - 1e-6 <= bound < least + 1


def test_relabelling_is_the_best_order() -> None:
    """Against all orders of four devices."""
    mesh, target = Mesh({"x": 2, "y": 2}), Mesh({"a": 4}, [2, 3, 0, 1])
    for source, goal in (('[{"x"}, {"y"}]', '[{"a"}, {}]'), ('[{"y"}, {}]', '[{"a"}, {}]')):
        reshard = Reshard((8, 8), "int8", mesh.sharding(source), target.sharding(goal))
        found = relabel(reshard)
        totals = []
        for order in itertools.permutations(range(4)):
            other = Mesh({"a": 4}, order).sharding(goal)
            moved = plan(Reshard((8, 8), "int8", reshard.source, other), "direct").traffic
            totals.append(moved.received_total)
        assert found.bytes_after == min(totals)
        assert found.bytes_before == plan(reshard, "direct").traffic.received_total
        assert plan(found.reshard, "direct").traffic.received_total == found.bytes_after
        assert found.bytes_after < found.bytes_before


def test_relabelling_undoes_a_permuted_order() -> None:
    mesh, target = Mesh({"x": 6}), Mesh({"x": 6}, [5, 3, 1, 0, 2, 4])
    reshard = Reshard((12,), "int8", mesh.sharding('[{"x"}]'), target.sharding('[{"x"}]'))
    found = relabel(reshard)
    assert found.reshard.target.mesh == mesh
    assert (found.bytes_before, found.bytes_after) == (12, 0)
    assert relabel(found.reshard).reshard == found.reshard


def test_relabelling_refuses_sums() -> None:
    mesh = Mesh({"x": 2})
    sums = mesh.sharding('[{}], unreduced={"x"}')
    assert message(lambda: relabel(Reshard((2,), "int8", sums, sums))) == exactly(
        """
        source: devices with partial sums cannot be relabelled
        got: [{}], unreduced={"x"}
        expected: no unreduced axes
        """
    )
