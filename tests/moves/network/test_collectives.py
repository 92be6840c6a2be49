"""What collectives cost: the fourth seed's table, and rings against forwarding by hand."""

from __future__ import annotations

import numpy as np
import pytest

from shardwright.codegen.hardware.topology import Hierarchical, Switch, Topology, Torus
from shardwright.codegen.moves.basis.digits import Pair
from shardwright.codegen.moves.network.collectives import Prices
from shardwright.codegen.moves.network.flows import flows
from shardwright.codegen.moves.network.links import Network
from shardwright.ir import Mesh, Reshard
from shardwright.ir.exchange import Exchange, HolderRule
from shardwright.ir.transfers import enumerate_transfers

BANDWIDTH = 1e9  # one way
BIDIRECTIONAL = 2 * BANDWIDTH
NO_LATENCY = 1e-30


def prices(topology: Topology) -> Prices:
    assert topology.size is not None
    return Prices(Network(topology, topology.size), np.arange(topology.size))


def wrapped(*dims: int) -> Torus:
    return Torus(dims, (True,) * len(dims), BANDWIDTH, NO_LATENCY)


def digits(dims: tuple[int, ...], axes: int) -> tuple[Pair, ...]:
    """The first axes of a torus as digits of the device."""
    strides = [int(np.prod(dims[i + 1 :])) for i in range(axes)]
    return tuple(zip(strides, dims, strict=False))


@pytest.mark.parametrize("n", [4, 8, 16, 64])
def test_the_table_of_the_seed_along_one_axis(n: int) -> None:
    """Time of an array of B bytes over a ring of n: the seed's, which lets n go to infinity."""
    of, group, size = prices(wrapped(n)), ((1, n),), 1e6 * n
    gathered = size / BIDIRECTIONAL
    ring = (n - 1) / n
    assert of.all_gather(group, size / n) == pytest.approx(gathered * ring)
    assert of.reduce_scatter(group, size) == pytest.approx(gathered * ring)
    assert of.all_reduce(group, size) == pytest.approx(2 * gathered * ring)
    assert of.all_to_all(group, size / n) == pytest.approx(gathered / 4)


@pytest.mark.parametrize("dims", [(4, 4), (8, 8), (4, 4, 4)])
def test_the_table_of_the_seed_along_several_axes(dims: tuple[int, ...]) -> None:
    """An all-gather is as many times faster as the torus has axes."""
    of, devices = prices(wrapped(*dims)), int(np.prod(dims))
    size = 1e6 * devices
    for axes in range(1, len(dims) + 1):
        group = digits(dims, axes)
        members = int(np.prod(dims[:axes]))
        shard = size / members
        expected = size / (BIDIRECTIONAL * axes) * (members - 1) / members
        assert of.all_gather(group, shard) == pytest.approx(expected)


def test_a_chain_is_half_as_fast_as_a_ring() -> None:
    chain = prices(Torus((8,), (False,), BANDWIDTH, NO_LATENCY))
    ring = prices(wrapped(8))
    group = ((1, 8),)
    assert chain.all_gather(group, 1e6) == pytest.approx(2 * ring.all_gather(group, 1e6))


def test_groups_that_interleave_share_their_links() -> None:
    """Devices 0, 2, 4, 6 of a ring of 8 gather beside 1, 3, 5, 7: every link carries both."""
    ring = prices(wrapped(8))
    assert ring.all_gather(((2, 4),), 1e6) == pytest.approx(2 * 3 / 2 * 1e6 / BANDWIDTH)


def test_a_switch() -> None:
    """Every device receives all that it lacks through one link: a message a peer of an all-to-all,
    a message a doubling of a gather."""
    of = prices(Switch(8, BANDWIDTH, 1e-6))
    assert of.all_gather(((1, 8),), 1e6) == pytest.approx(3e-6 + 7e6 / BANDWIDTH)
    assert of.all_to_all(((1, 8),), 8e6) == pytest.approx(7e-6 + 7e6 / BANDWIDTH)
    assert of.all_reduce(((1, 8),), 8e6) == pytest.approx(2 * (3e-6 + 7e6 / BANDWIDTH))
    six = prices(Switch(6, BANDWIDTH, 1e-6))
    assert six.all_gather(((1, 6),), 1e6) == pytest.approx(3e-6 + 5e6 / BANDWIDTH)  # 2, then 3


def test_hosts_are_entered_once() -> None:
    """A gather over hosts brings each host what it lacks once, not once for each device in it."""
    of = prices(Hierarchical(2, 4, BANDWIDTH, NO_LATENCY, BANDWIDTH, NO_LATENCY))
    across = 4e6 / BANDWIDTH  # four shards of the other host
    within = 3 * 2e6 / BANDWIDTH  # then pairs of shards to three neighbours
    assert of.all_gather(((4, 2), (1, 4)), 1e6) == pytest.approx(across + within)


@pytest.mark.parametrize("rule", [None, HolderRule("turns", 2, 0)])
def test_flows_are_the_transfers(rule: HolderRule | None) -> None:
    """Bytes between each pair of devices, against the transfers enumerated."""
    mesh = Mesh({"x": 2, "y": 4})
    reshard = Reshard(
        (37, 23), "float32", mesh.sharding('[{"x"}, {}]'), mesh.sharding('[{}, {"y"}]')
    )
    exchange = Exchange.of(reshard, rule or HolderRule())
    moved = enumerate_transfers(exchange)
    expected, found = np.zeros((8, 8)), np.zeros((8, 8))
    away = ~moved.is_local
    np.add.at(expected, (moved.sender[away], moved.receiver[away]), 4 * moved.elements[away])
    for part in flows(exchange, 4):
        np.add.at(found, (part.sender, part.receiver), part.weight)
    np.testing.assert_array_equal(found, expected)
    assert expected.sum() > 0


@pytest.mark.slow
def test_thousands_of_devices_are_routed() -> None:
    """All pairs of 4096 devices, 16 million transfers, on a torus of 16x16x16."""
    mesh = Mesh({"x": 64, "y": 64})
    reshard = Reshard(
        (4096, 4096), "int8", mesh.sharding('[{"x", "y"}, {}]'), mesh.sharding('[{}, {"x", "y"}]')
    )
    exchange = Exchange.of(reshard, HolderRule())
    network = Network(Torus((16, 16, 16), (True,) * 3, BANDWIDTH, 1e-6), 4096)
    load = network.total(flows(exchange, 1))
    # 4096 devices times 16*16/8 hops each way of every axis for every value of the other two.
    np.testing.assert_allclose(load.nbytes, 4096 * 16 / 8)
